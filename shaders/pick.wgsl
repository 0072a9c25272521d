// id = argmax over kept i of score_i / temperature + noise(seed, n, i); probability_i = softmax over kept i of score_i / temperature
//
// The last step of a pass: from the logits of the newest position to the next id, which stays on the GPU as the input of
// the next step. Score = logit after the repetition penalty. `kept` are the ids that top-k and then top-p leave.
// One workgroup; its twin in plain Rust is `sampling::pick`.
//
// Both processors keep the ids whose score is at least some threshold, so no id is ever sorted: the threshold is searched
// for. Scores become keys, u32 numbers of the same order, and each pass over the vocabulary cuts the range of keys that
// the threshold can be in to a quarter, until one id (or one group of equal scores) is left in it.

override LANES: u32 = 256u; // threads, a multiple of 16 and at least MOST_LISTED
const GROUPS: u32 = 16u; // groups of lanes; one lane folds the results of a group
override GROUP_SIZE: u32 = LANES / GROUPS;
const MOST_LISTED: u32 = 40u; // candidates that fit into the record
const NO_CANDIDATE: u32 = 0xFFFFFFFFu; // fills the record where the vocabulary has fewer ids than candidates are asked for

// The searches, in their order.
const TOP_K: u32 = 0u;
const TOP_P: u32 = 1u; // in what top-k left
const LISTED: u32 = 2u; // the candidates
const TIED: u32 = 3u; // the lowest ids among equal scores at the end of the list

struct Sampling {
  do_sample: u32,
  top_k: u32, // 0: off
  top_p: f32, // 1: off
  temperature: f32,
  repetition_penalty: f32, // 1: off
  seed_lo: u32,
  seed_hi: u32,
  n_vocab: u32, // ids that may be picked are below this, at most V
  top_logits: u32, // candidates to list
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<storage, read_write> state: State;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>; // [n_positions + 1] ids of the sequence
@group(0) @binding(2) var<storage, read> logits: array<f32>; // [V] raw, of the newest position
@group(0) @binding(3) var<storage, read_write> scores: array<f32>; // [V] after the penalty; unused without one
@group(0) @binding(4) var<storage, read_write> record: array<u32>; // [4 + 3 * top_logits] what the host reads back
@group(0) @binding(5) var<uniform> sampling: Sampling;

// How many ids, and the sum of their exp((score - best score) / temperature).
struct Sum {
  count: u32,
  mass: f32,
}

// The range of keys, lo <= key < hi, that holds the threshold: lo reaches what is wanted, hi does not.
struct Range {
  lo: u32,
  hi: u32,
  from_lo: Sum, // over all keys >= lo
  from_hi: Sum, // over all keys >= hi
  found: u32, // 1: keeping the keys >= lo is the answer
}

var<workgroup> counts: array<vec4<u32>, LANES>;
var<workgroup> masses: array<vec4<f32>, LANES>;
var<workgroup> lane_best: array<vec2<u32>, LANES>; // (key, id) of the best id that each lane has seen
var<workgroup> group_best: array<vec2<u32>, GROUPS>;
var<workgroup> best: vec2<u32>;
var<workgroup> range: Range;
var<workgroup> candidates: array<vec2<u32>, MOST_LISTED>; // (key, id) of the candidates, in no order
var<workgroup> listed_probability: array<f32, MOST_LISTED>; // by rank
var<workgroup> filled: atomic<u32>;
var<workgroup> listed_kept: atomic<u32>;

fn score(id: u32) -> f32 {
  if (sampling.repetition_penalty == 1.0) {
    return logits[id];
  }
  return scores[id];
}

// A u32 that orders like the f32; -0 and 0 are equal.
fn sort_key(value: f32) -> u32 {
  let bits = select(bitcast<u32>(value), 0u, value == 0.0);
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

// log(probability) up to a constant: 0 for the best id. It is cut off far below what any noise can make up for, so that
// nothing overflows however small the temperature is.
fn log_weight(id: u32, best_score: f32) -> f32 {
  let below_best = best_score - score(id);
  return -min(below_best, 1000.0 * sampling.temperature) / sampling.temperature;
}

fn is_better(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.x > b.x || (a.x == b.x && a.y < b.y); // equal keys: the lower id
}

// The best of all lanes' (key, id). Leaves each lane's own in lane_best.
fn best_of_lanes(lane: u32, mine: vec2<u32>) -> vec2<u32> {
  lane_best[lane] = mine;
  workgroupBarrier();
  if (lane < GROUPS) {
    var winner = lane_best[lane * GROUP_SIZE];
    for (var i = 1u; i < GROUP_SIZE; i++) {
      let other = lane_best[lane * GROUP_SIZE + i];
      winner = select(winner, other, is_better(other, winner));
    }
    group_best[lane] = winner;
  }
  workgroupBarrier();
  if (lane == 0u) {
    var winner = group_best[0];
    for (var i = 1u; i < GROUPS; i++) {
      winner = select(winner, group_best[i], is_better(group_best[i], winner));
    }
    best = winner;
  }
  return workgroupUniformLoad(&best);
}

// What a search compares: scores, or, among the ids with one score, which id is lower.
struct Order {
  by_id: bool,
  tied_key: u32,
}

fn order_key(order: Order, id: u32) -> u32 {
  let key = sort_key(score(id));
  if (order.by_id) {
    return select(0u, sampling.n_vocab - id, key == order.tied_key);
  }
  return key;
}

// The highest threshold such that the ids with keys >= threshold reach `wanted`, in count and in mass. It starts with
// lo <= threshold < hi and nothing at or above hi.
fn search(lane: u32, order: Order, best_score: f32, lo: u32, hi: u32, wanted: Sum) -> Range {
  if (lane == 0u) {
    range = Range(lo, hi, Sum(0u, 0.0), Sum(0u, 0.0), 0u);
  }
  var now = workgroupUniformLoad(&range);
  // A range of 2^32 keys is quartered 16 times at most; rounding up may cost one pass more.
  for (var pass_index = 0u; pass_index < 17u && now.found == 0u; pass_index++) {
    let quarter = (now.hi - now.lo - 1u) / 4u + 1u;
    let starts = min(now.lo + quarter * vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(now.hi));
    var count = vec4<u32>(0u);
    var mass = vec4<f32>(0.0);
    for (var id = lane; id < sampling.n_vocab; id += LANES) {
      let key = order_key(order, id);
      if (key >= now.lo && key < now.hi) {
        let reaches = vec4<u32>(key) >= starts;
        count += select(vec4<u32>(0u), vec4<u32>(1u), reaches);
        mass += select(vec4<f32>(0.0), vec4<f32>(exp(log_weight(id, best_score))), reaches);
      }
    }
    counts[lane] = count;
    masses[lane] = mass;
    workgroupBarrier();
    if (lane < GROUPS) {
      for (var i = 1u; i < GROUP_SIZE; i++) {
        counts[lane * GROUP_SIZE] += counts[lane * GROUP_SIZE + i];
        masses[lane * GROUP_SIZE] += masses[lane * GROUP_SIZE + i];
      }
    }
    workgroupBarrier();
    if (lane == 0u) {
      range = narrowed(now, starts, wanted);
    }
    now = workgroupUniformLoad(&range);
  }
  return now;
}

// The quarter of the range that the threshold is in, from the groups' sums over the keys at or above each quarter's start.
fn narrowed(now: Range, starts: vec4<u32>, wanted: Sum) -> Range {
  var count = vec4<u32>(now.from_hi.count);
  var mass = vec4<f32>(now.from_hi.mass);
  for (var group = 0u; group < GROUPS; group++) {
    count += counts[group * GROUP_SIZE];
    mass += masses[group * GROUP_SIZE];
  }
  // If rounding of the mass lets not even the lowest quarter reach, everything is kept.
  var next = Range(starts.x, starts.y, Sum(count.x, mass.x), Sum(count.y, mass.y), 0u);
  if (count.y >= wanted.count && mass.y >= wanted.mass) {
    next = Range(starts.y, starts.z, Sum(count.y, mass.y), Sum(count.z, mass.z), 0u);
  }
  if (count.z >= wanted.count && mass.z >= wanted.mass) {
    next = Range(starts.z, starts.w, Sum(count.z, mass.z), Sum(count.w, mass.w), 0u);
  }
  if (count.w >= wanted.count && mass.w >= wanted.mass) {
    next = Range(starts.w, now.hi, Sum(count.w, mass.w), now.from_hi, 0u);
  }
  // One id or one key left, or exactly as many ids as wanted: a higher threshold would keep too few.
  let one_left = next.from_lo.count <= next.from_hi.count + 1u || next.hi - next.lo <= 1u;
  next.found = u32(one_left || next.from_lo.count <= wanted.count);
  return next;
}

// A key that at least `count` ids reach: the count-th best of the lanes' best ids. It saves a search most of its passes.
fn reached_by(lane: u32, count: u32) -> u32 {
  if (lane == 0u) {
    best = vec2<u32>(0u);
  }
  workgroupBarrier();
  if (count <= LANES) {
    let mine = lane_best[lane];
    var rank = 0u;
    for (var i = 0u; i < LANES; i++) {
      rank += u32(is_better(lane_best[i], mine));
    }
    if (rank == count - 1u && mine.y != NO_CANDIDATE) {
      best = mine;
    }
  }
  return workgroupUniformLoad(&best).x;
}

// A bijection of u32 in which each input bit changes each output bit with a chance of about one half.
fn mix_bits(value: u32) -> u32 {
  var x = value;
  x ^= x >> 16u;
  x *= 0x7FEB352Du;
  x ^= x >> 15u;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16u);
}

// Standard Gumbel noise -log(e), e = -log(1 - v), v uniform in (0, 1). The largest noise decides; it comes from the smallest
// v, where the series for e is precise, while WGSL allows log an error of 2^-21 near 1.
fn gumbel(noise_key: u32, id: u32) -> f32 {
  let hash = mix_bits(mix_bits(id ^ noise_key) + noise_key);
  let v = min((f32(hash) + 0.5) / 4294967296.0, 0.99999994);
  let series = v * (1.0 + v * (1.0 / 2.0 + v * (1.0 / 3.0 + v * (1.0 / 4.0 + v * (1.0 / 5.0)))));
  return -log(select(-log(1.0 - v), series, v < 0.0625));
}

@compute @workgroup_size(LANES)
fn pick(@builtin(local_invocation_index) lane: u32) {
  let n_vocab = sampling.n_vocab;
  let n = state.past + state.rows; // ids known so far = index of the new one

  // Repetition penalty, written from the raw logits: an id that is there twice is penalised once.
  if (sampling.repetition_penalty != 1.0) {
    for (var id = lane; id < n_vocab; id += LANES) {
      scores[id] = logits[id];
    }
    storageBarrier();
    for (var i = lane; i < n; i += LANES) {
      let id = tokens[i];
      if (id < n_vocab) {
        let logit = logits[id];
        let penalty = sampling.repetition_penalty;
        scores[id] = select(logit / penalty, logit * penalty, logit < 0.0);
      }
    }
    storageBarrier();
  }

  // The best id: the answer without do_sample, and what all weights are relative to.
  var mine = vec2<u32>(0u, NO_CANDIDATE);
  for (var id = lane; id < n_vocab; id += LANES) {
    let key = sort_key(score(id));
    if (key > mine.x) {
      mine = vec2<u32>(key, id);
    }
  }
  let winner = best_of_lanes(lane, mine);
  let best_score = score(winner.y);

  // The searches run in one loop: compilers would copy the code of a search to each place that calls it.
  let k = select(sampling.top_k, n_vocab, sampling.top_k == 0u || sampling.top_k > n_vocab);
  let n_listed = min(min(sampling.top_logits, MOST_LISTED), n_vocab);
  var after_top_k = Range(0u, winner.x + 1u, Sum(n_vocab, 0.0), Sum(0u, 0.0), 1u); // everything
  var kept = after_top_k;
  var listed = after_top_k;
  var tied_lo = 0u;
  for (var goal = TOP_K; goal <= TIED; goal++) {
    var needed = n_listed > 0u;
    var wanted = Sum(n_listed, 0.0);
    var lo = 0u;
    var hi = winner.x + 1u; // above every key
    if (goal == TOP_K) {
      // Without top-k one pass keeps everything; it is there for the sum of the weights.
      needed = k < n_vocab || sampling.top_p < 1.0 || n_listed > 0u;
      wanted.count = k;
    } else if (goal == TOP_P) {
      // A count of 1: the best id always stays.
      needed = sampling.top_p < 1.0;
      wanted = Sum(1u, sampling.top_p * after_top_k.from_lo.mass);
      lo = after_top_k.lo;
    } else if (goal == TIED) {
      needed = n_listed > 0u && listed.from_lo.count > n_listed;
      wanted.count = n_listed - listed.from_hi.count;
      lo = 1u;
      hi = n_vocab + 1u;
    }
    if (!needed) {
      continue;
    }
    if (goal == TOP_K || goal == LISTED) {
      lo = reached_by(lane, wanted.count);
    }
    let found = search(lane, Order(goal == TIED, listed.lo), best_score, lo, hi, wanted);
    if (goal == TOP_K) {
      after_top_k = found;
    }
    if (goal <= TOP_P) {
      kept = found;
    } else if (goal == LISTED) {
      listed = found;
    } else {
      tied_lo = found.lo;
    }
  }

  var rest = 1.0;
  if (n_listed > 0u) {
    rest = list_candidates(lane, n_listed, best_score, listed.lo, tied_lo, after_top_k.lo, kept);
  }

  var id = winner.y;
  if (sampling.do_sample == 1u) {
    let noise_key = mix_bits(mix_bits(mix_bits(n) ^ sampling.seed_lo) ^ sampling.seed_hi);
    var drawn = vec2<u32>(0u, NO_CANDIDATE);
    for (var other = lane; other < n_vocab; other += LANES) {
      if (sort_key(score(other)) >= kept.lo) {
        let key = sort_key(log_weight(other, best_score) + gumbel(noise_key, other));
        if (key > drawn.x) {
          drawn = vec2<u32>(key, other);
        }
      }
    }
    id = best_of_lanes(lane, drawn).y;
  }

  if (lane == 0u) {
    tokens[n] = id;
    state.past = n;
    state.rows = 1u;
    record[0] = id;
    record[1] = kept.from_lo.count;
    record[2] = bitcast<u32>(rest);
    record[3] = n;
  }
}

// Writes the ids with keys >= lo into the record, ranked by score and then by id; of those at lo itself, if there are too
// many, only the ones from tied_lo in the order of ids. Returns the probability of the kept ids that are not listed.
fn list_candidates(lane: u32, n: u32, best_score: f32, lo: u32, tied_lo: u32, top_k_lo: u32, kept: Range) -> f32 {
  if (lane == 0u) {
    atomicStore(&filled, 0u);
    atomicStore(&listed_kept, 0u);
  }
  workgroupBarrier();
  for (var id = lane; id < sampling.n_vocab; id += LANES) {
    let key = sort_key(score(id));
    if (key > lo || (key == lo && sampling.n_vocab - id >= tied_lo)) {
      let slot = atomicAdd(&filled, 1u);
      if (slot < MOST_LISTED) {
        candidates[slot] = vec2<u32>(key, id);
      }
    }
  }
  workgroupBarrier();
  if (lane < n) {
    let mine = candidates[lane];
    var rank = 0u;
    for (var i = 0u; i < n; i++) {
      rank += u32(is_better(candidates[i], mine));
    }
    var removed = 0u;
    var probability = 0.0;
    if (mine.x >= kept.lo) {
      probability = exp(log_weight(mine.y, best_score)) / kept.from_lo.mass;
      atomicAdd(&listed_kept, 1u);
    } else {
      removed = select(2u, 1u, mine.x < top_k_lo);
    }
    listed_probability[rank] = probability;
    record[4u + 3u * rank] = mine.y | (removed << 30u);
    record[5u + 3u * rank] = bitcast<u32>(logits[mine.y]);
    record[6u + 3u * rank] = bitcast<u32>(probability);
  } else if (lane < sampling.top_logits) {
    record[4u + 3u * lane] = NO_CANDIDATE;
  }
  workgroupBarrier();
  var sum = 0.0;
  for (var i = 0u; i < n; i++) {
    sum += listed_probability[i];
  }
  return select(max(1.0 - sum, 0.0), 0.0, atomicLoad(&listed_kept) == kept.from_lo.count);
}
