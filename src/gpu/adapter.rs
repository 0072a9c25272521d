//! Finding an adapter, saying who it is, and hearing of its errors; the only place where browser and native differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::Faults;
use crate::error::{Error, Result};

/// What the browser (or, natively, the driver) says about the device.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DeviceInfo {
    /// For example `nvidia`, `apple`, `google`.
    pub vendor: String,
    /// For example `ampere`, `metal-3`, `swiftshader`.
    pub architecture: String,
    /// A readable name, where there is one.
    pub description: String,
    /// Whether it is a software adapter: right, but slow.
    pub is_fallback: bool,
    /// Optional features in use.
    pub features: Vec<&'static str>,
    /// The limits that decide which models fit, by their WebGPU names.
    pub limits: BTreeMap<&'static str, u64>,
}

impl DeviceInfo {
    pub(super) fn new(adapter: &wgpu::Adapter, device: &wgpu::Device) -> Self {
        let limits = device.limits();
        let mut known = Self::identity(adapter, device);
        if device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            known.features.push("timestamp-query");
        }
        known.limits = BTreeMap::from([
            ("maxBufferSize", limits.max_buffer_size),
            (
                "maxStorageBufferBindingSize",
                limits.max_storage_buffer_binding_size,
            ),
            (
                "maxStorageBuffersPerShaderStage",
                limits.max_storage_buffers_per_shader_stage.into(),
            ),
            (
                "maxComputeWorkgroupStorageSize",
                limits.max_compute_workgroup_storage_size.into(),
            ),
            (
                "maxComputeInvocationsPerWorkgroup",
                limits.max_compute_invocations_per_workgroup.into(),
            ),
            (
                "maxComputeWorkgroupsPerDimension",
                limits.max_compute_workgroups_per_dimension.into(),
            ),
        ]);
        known
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl DeviceInfo {
    fn identity(adapter: &wgpu::Adapter, _device: &wgpu::Device) -> Self {
        let info = adapter.get_info();
        Self {
            vendor: vendor_name(info.vendor),
            architecture: info.backend.to_string(),
            description: info.name,
            is_fallback: info.device_type == wgpu::DeviceType::Cpu,
            ..Self::default()
        }
    }
}

/// The PCI vendor's name; 0x10005 is Mesa's software rasteriser.
#[cfg(not(target_arch = "wasm32"))]
fn vendor_name(id: u32) -> String {
    match id {
        0x10de => "nvidia".into(),
        0x1002 => "amd".into(),
        0x8086 => "intel".into(),
        0x106b => "apple".into(),
        0x13b5 => "arm".into(),
        0x5143 => "qualcomm".into(),
        0x10005 => "mesa".into(),
        other => format!("{other:#06x}"),
    }
}

/// A property of a JavaScript object, `undefined` where there is none.
#[cfg(target_arch = "wasm32")]
fn get(object: &wasm_bindgen::JsValue, name: &str) -> wasm_bindgen::JsValue {
    js_sys::Reflect::get(object, &name.into()).unwrap_or(wasm_bindgen::JsValue::UNDEFINED)
}

fn instance() -> wgpu::Instance {
    wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle())
}

fn options() -> wgpu::RequestAdapterOptions<'static, 'static> {
    wgpu::RequestAdapterOptions {
        power_preference: wgpu::PowerPreference::HighPerformance,
        ..Default::default()
    }
}

#[cfg(not(target_arch = "wasm32"))]
pub(super) async fn request() -> Result<wgpu::Adapter> {
    let adapter = instance().request_adapter(&options()).await.map_err(|e| {
        Error::NoAdapter(format!(
            "No graphics adapter was found: {e}. Install a Vulkan, Metal or Direct3D 12 driver; on Debian and Ubuntu \
             the package mesa-vulkan-drivers brings a software one."
        ))
    })?;
    Ok(adapter)
}

#[cfg(not(target_arch = "wasm32"))]
pub(super) fn watch_errors(device: &wgpu::Device, faults: &Arc<Faults>) {
    let faults = faults.clone();
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        faults.record(match error {
            wgpu::Error::OutOfMemory { .. } => out_of_memory(),
            other => device_error(&other.to_string()),
        });
    }));
}

#[cfg(target_arch = "wasm32")]
pub(super) async fn request() -> Result<wgpu::Adapter> {
    let global = js_sys::global();
    if get(&global, "isSecureContext").is_falsy() {
        return Err(Error::InsecureContext(
            "This page was opened over an insecure connection, where browsers hide WebGPU. Open it through https:// \
             or from localhost."
                .into(),
        ));
    }
    if get(&get(&global, "navigator"), "gpu").is_falsy() {
        return Err(Error::NoWebgpu(
            "This browser has no WebGPU. Use a current Chrome, Edge, Safari or Firefox, and see that hardware \
             acceleration is switched on in its settings."
                .into(),
        ));
    }
    let adapter = instance().request_adapter(&options()).await.map_err(|_| {
        Error::NoAdapter(
            "This browser has WebGPU, but found no graphics adapter that it may use. Switch on hardware acceleration, \
             update the graphics driver, and see what chrome://gpu (or about:support) says."
                .into(),
        )
    })?;
    Ok(adapter)
}

#[cfg(target_arch = "wasm32")]
impl DeviceInfo {
    /// Reads `GPUDevice.adapterInfo`, since wgpu's own adapter info is empty in browsers.
    fn identity(_adapter: &wgpu::Adapter, device: &wgpu::Device) -> Self {
        let Some(device) = device.as_webgpu() else {
            return Self::default();
        };
        let info = get(device.as_ref(), "adapterInfo");
        let text = |name| get(&info, name).as_string().unwrap_or_default();
        Self {
            vendor: text("vendor"),
            architecture: text("architecture"),
            description: text("description"),
            is_fallback: get(&info, "isFallbackAdapter").is_truthy(),
            ..Self::default()
        }
    }
}

#[cfg(target_arch = "wasm32")]
pub(super) fn watch_errors(device: &wgpu::Device, faults: &Arc<Faults>) {
    use wasm_bindgen::{JsCast, JsValue, closure::Closure};
    let Some(device) = device.as_webgpu() else {
        return;
    };
    let faults = faults.clone();
    let listener = Closure::<dyn FnMut(JsValue)>::new(move |event: JsValue| {
        let error = get(&event, "error");
        let kind = get(&get(&error, "constructor"), "name")
            .as_string()
            .unwrap_or_default();
        let message = get(&error, "message").as_string().unwrap_or_default();
        faults.record(if kind == "GPUOutOfMemoryError" {
            out_of_memory()
        } else {
            device_error(&message)
        });
    });
    let target: &web_sys::EventTarget = device.unchecked_ref();
    // Adding a listener fails only for a missing callback.
    let _ = target
        .add_event_listener_with_callback("uncapturederror", listener.as_ref().unchecked_ref());
    // The device lives as long as the page may hear of its errors.
    listener.forget();
}

fn out_of_memory() -> Error {
    Error::OutOfMemory(
        "The GPU has no memory left for this model. Close other programs that use the GPU, or choose a smaller model \
         or dtype."
            .into(),
    )
}

fn device_error(message: &str) -> Error {
    Error::Internal(format!(
        "The GPU refused a command: {message}. Reload the page, and please report this."
    ))
}
