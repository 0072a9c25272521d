//! The cases of `tests/cases` in a real browser: `wasm-pack test --headless --chrome`.
#![cfg(target_arch = "wasm32")]

mod cases;

use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

macro_rules! browser {
    ($($module:ident :: $case:ident,)*) => {
        $(
            #[wasm_bindgen_test]
            async fn $case() {
                cases::$module::$case().await;
            }
        )*
    };
}

every_case!(browser);
