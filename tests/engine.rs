//! The cases of `tests/cases` on this machine's adapter.
#![cfg(not(target_arch = "wasm32"))]

mod cases;

macro_rules! native {
    ($($module:ident :: $case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                pollster::block_on(cases::$module::$case());
            }
        )*
    };
}

every_case!(native);
