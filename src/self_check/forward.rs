//! The plain-Rust forward pass with weights that come back from the GPU piece by piece, so that a model of any size needs
//! little memory.

use std::ops::Range;

use super::{Checker, PIECE_BYTES};
use crate::checkpoint::{Matrix, Param, Place, Region, Tensor};
use crate::error::Result;
use crate::reference::{self, LayerCache, LayerNorm, Linear};

impl Checker<'_> {
    /// [`reference::forward`] of a prompt at position 0, with weights that come from the GPU piece by piece.
    pub(super) async fn forward(&self, ids: &[u32]) -> Result<Vec<f32>> {
        let config = self.model.config();
        let c = config.n_embd;
        let wpe = self.rows(Tensor::Wpe, 0..ids.len()).await?;
        let mut x = wpe; // [T, C]
        for (row, id) in x.chunks_exact_mut(c).zip(ids) {
            let id = *id as usize;
            reference::add(row, &self.rows(Tensor::Wte, id..id + 1).await?);
        }
        for layer in 0..config.n_layer {
            self.block(layer, &mut x).await?;
        }
        let ln_f = LayerNorm {
            weight: self.rows(Tensor::LnFWeight, 0..1).await?,
            bias: self.rows(Tensor::LnFBias, 0..1).await?,
        };
        let last = reference::layer_norm(&x[x.len() - c..], &ln_f, config.layer_norm_epsilon); // [C]
        let head = match self.model.weights().lm_head {
            Some(_) => Tensor::LmHead,
            None => Tensor::Wte,
        };
        let mut logits = Vec::with_capacity(config.vocab_size);
        for rows in self.pieces(head) {
            let rows = self.rows(head, rows).await?;
            logits.extend(rows.chunks_exact(c).map(|row| reference::dot(&last, row)));
        }
        Ok(logits)
    }

    /// [`reference::block`], one tensor after the other.
    async fn block(&self, layer: usize, x: &mut [f32]) -> Result<()> {
        let config = self.model.config();
        let mut cache = LayerCache {
            half: self.model.past_key_values().is_half(),
            ..LayerCache::default()
        };
        let normed = self
            .norm(layer, x, Param::Ln1Weight, Param::Ln1Bias)
            .await?;
        let qkv = self
            .linear(layer, &normed, Matrix::CAttn, Param::CAttnBias)
            .await?;
        let q = reference::split_qkv(&qkv, config.n_embd, &mut cache);
        let (h, d, scale) = (config.n_head, config.head_size(), config.score_scale(layer));
        let mixed = reference::attention(&q, &cache, h, d, scale);
        reference::add(
            x,
            &self
                .linear(layer, &mixed, Matrix::AttnProj, Param::AttnProjBias)
                .await?,
        );

        let normed = self
            .norm(layer, x, Param::Ln2Weight, Param::Ln2Bias)
            .await?;
        let mut inner = self
            .linear(layer, &normed, Matrix::CFc, Param::CFcBias)
            .await?;
        for x in &mut inner {
            *x = reference::activation(config.activation_function, *x);
        }
        reference::add(
            x,
            &self
                .linear(layer, &inner, Matrix::MlpProj, Param::MlpProjBias)
                .await?,
        );
        Ok(())
    }

    async fn norm(&self, layer: usize, x: &[f32], weight: Param, bias: Param) -> Result<Vec<f32>> {
        let ln = LayerNorm {
            weight: self
                .rows(
                    Tensor::Param {
                        layer,
                        param: weight,
                    },
                    0..1,
                )
                .await?,
            bias: self
                .rows(Tensor::Param { layer, param: bias }, 0..1)
                .await?,
        };
        Ok(reference::layer_norm(
            x,
            &ln,
            self.model.config().layer_norm_epsilon,
        ))
    }

    /// x `[T, K]` -> `[T, N]`: the products of some rows of the matrix, added up.
    async fn linear(
        &self,
        layer: usize,
        x: &[f32],
        matrix: Matrix,
        bias: Param,
    ) -> Result<Vec<f32>> {
        let bias = self
            .rows(Tensor::Param { layer, param: bias }, 0..1)
            .await?; // [N]
        let tensor = Tensor::Matrix { layer, matrix };
        let k = tensor.shape(self.model.config())[0];
        let mut y = bias.repeat(x.len() / k);
        for rows in self.pieces(tensor) {
            let part = Linear {
                weight: self.rows(tensor, rows.clone()).await?,
                bias: vec![0.0; bias.len()],
            };
            let columns: Vec<f32> = x
                .chunks_exact(k)
                .flat_map(|row| &row[rows.clone()])
                .copied()
                .collect();
            reference::add(&mut y, &reference::linear(&columns, &part));
        }
        Ok(y)
    }

    /// The rows of a tensor in stretches of whole blocks, each about one piece.
    fn pieces(&self, tensor: Tensor) -> Vec<Range<usize>> {
        let place = Place::new(self.layout, tensor);
        let per_piece = (PIECE_BYTES / place.data(0..1).bytes.max(1)).max(1);
        (0..place.blocks())
            .step_by(per_piece)
            .map(|first| place.source_rows(first..(first + per_piece).min(place.blocks())))
            .filter(|rows| !rows.is_empty())
            .collect()
    }

    /// Rows of a tensor as the checkpoint has them, rounded as they are stored.
    async fn rows(&self, tensor: Tensor, rows: Range<usize>) -> Result<Vec<f32>> {
        let place = Place::new(self.layout, tensor);
        let holds = |block: &usize| {
            let has = place.source_rows(*block..*block + 1);
            has.start < rows.end && rows.start < has.end
        };
        let first = (0..place.blocks()).find(holds).unwrap_or(0);
        let end = (first..place.blocks())
            .take_while(|block| holds(block))
            .last()
            .map_or(first, |last| last + 1);
        let data = self.read(place.data(first..end)).await?;
        let scales = match place.scales(first..end) {
            Some(region) => self.read(region).await?,
            None => Vec::new(),
        };
        let mut values = place.unpack(first..end, &data, &scales);
        let width = place.columns().source_len();
        let before = rows.start - place.source_rows(first..end).start;
        values.truncate((before + rows.len()) * width);
        values.drain(..before * width);
        Ok(values)
    }

    pub(super) async fn read(&self, region: Region) -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(region.bytes);
        // A table may go on in another buffer; a tile never does.
        while all.len() < region.bytes {
            let (tensor, offset) = self
                .model
                .weights()
                .locate(region.target, region.offset + all.len() as u64)?;
            let bytes = ((region.bytes - all.len()) as u64).min(tensor.bytes() - offset);
            all.extend(
                self.model
                    .read_through(&self.ring, tensor, offset, bytes)
                    .await?,
            );
        }
        Ok(all)
    }
}
