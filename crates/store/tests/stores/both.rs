//! Every promise twice: with a file, and with a server.

/// Makes a test for each kind of store of functions that take one.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let place = crate::Place::new();
                super::$name(std::sync::Arc::new(place.open().await)).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let Some(server) = crate::postgres::server(stringify!($name)) else { return };
                let store = crate::postgres::open(&server, "postgres").await.unwrap();
                super::$name(std::sync::Arc::new(store)).await;
            })*
        }
    };
}

pub(crate) use both;
