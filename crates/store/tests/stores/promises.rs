//! What is written is there, whole, and from many tasks at once.

use std::sync::Arc;

use domain::Labels;
use store::StoreError;

use super::*;

both!(
    a_record_comes_back_whole_and_is_replaced_with_its_labels,
    a_forgotten_sandbox_is_gone_with_its_labels_and_one_never_known_is_a_success,
    a_name_is_taken_once_for_each_owner,
    a_key_is_found_by_its_hash_until_another_takes_its_name,
    what_has_no_end_is_refused_and_leaves_nothing,
    thousands_of_labels_that_fit_into_a_record_are_kept_and_found,
    fifty_tasks_write_and_read_at_once,
    hostile_text_is_kept_as_it_is_and_does_nothing,
);

async fn a_record_comes_back_whole_and_is_replaced_with_its_labels(store: Arc<dyn Store>) {
    let mut first = lease(1);
    first.labels = Labels::from([("team".into(), "red".into()), ("old".into(), "yes".into())]);
    first.spec.token = Some(Token::new("secret"));
    store.put_lease(&first).await.unwrap();
    assert_eq!(store.leases(&LeaseQuery::default()).await.unwrap().items, [first.clone()]);

    let mut second = running(1);
    second.labels = Labels::from([("team".into(), "blue".into())]);
    store.put_lease(&second).await.unwrap();
    assert_eq!(store.leases(&LeaseQuery::default()).await.unwrap().items, [second]);
    let old = LeaseQuery { labels: first.labels, ..LeaseQuery::default() };
    assert_eq!(found(&*store, old).await, (vec![], 0));
}

async fn a_forgotten_sandbox_is_gone_with_its_labels_and_one_never_known_is_a_success(
    store: Arc<dyn Store>,
) {
    let mut labelled = lease(1);
    labelled.labels = Labels::from([("team".into(), "red".into())]);
    store.put_lease(&labelled).await.unwrap();
    store.remove_lease(&id(1)).await.unwrap();
    store.remove_lease(&id(2)).await.unwrap();
    assert_eq!(found(&*store, LeaseQuery::default()).await, (vec![], 0));
    // A label that stayed behind would hang on the next one of this id.
    store.put_lease(&lease(1)).await.unwrap();
    let query = LeaseQuery { labels: labelled.labels, ..LeaseQuery::default() };
    assert_eq!(found(&*store, query).await, (vec![], 0));
}

async fn a_name_is_taken_once_for_each_owner(store: Arc<dyn Store>) {
    let named = |number, owner: &str| {
        let mut lease = lease(number);
        lease.name = Some("web".parse().unwrap());
        lease.owner = Owner(owner.to_owned());
        lease
    };
    store.put_lease(&named(1, "acme")).await.unwrap();
    store.put_lease(&named(2, "umbrella")).await.unwrap();
    // The same sandbox keeps its name.
    store.put_lease(&named(1, "acme")).await.unwrap();
    let error = store.put_lease(&named(3, "acme")).await.unwrap_err();
    assert!(matches!(&error, StoreError::NameTaken { name } if name.as_str() == "web"), "{error}");
    assert_eq!(found(&*store, LeaseQuery::default()).await.1, 2, "a refused record is absent");
    store.remove_lease(&id(1)).await.unwrap();
    store.put_lease(&named(3, "acme")).await.unwrap();
    // Any number of them have none.
    store.put_lease(&lease(4)).await.unwrap();
    store.put_lease(&lease(5)).await.unwrap();
}

async fn a_key_is_found_by_its_hash_until_another_takes_its_name(store: Arc<dyn Store>) {
    assert_eq!(store.key(&key("ci", "one").hash).await.unwrap(), None);
    store.put_key(&key("ci", "one")).await.unwrap();
    store.put_key(&key("laptop", "two")).await.unwrap();
    assert_eq!(store.key(&key("ci", "one").hash).await.unwrap(), Some(key("ci", "one")));

    store.put_key(&key("ci", "three")).await.unwrap();
    assert_eq!(store.key(&key("ci", "one").hash).await.unwrap(), None);
    assert_eq!(store.key(&key("ci", "three").hash).await.unwrap(), Some(key("ci", "three")));

    store.put_key(&key("phone", "two")).await.unwrap();
    assert_eq!(store.key(&key("laptop", "two").hash).await.unwrap(), Some(key("phone", "two")));
}

async fn what_has_no_end_is_refused_and_leaves_nothing(store: Arc<dyn Store>) {
    let mut large = lease(1);
    large.labels.insert("k".to_owned(), "v".repeat(65 << 10));
    assert!(store.put_lease(&large).await.is_err());
    assert_eq!(found(&*store, LeaseQuery::default()).await.1, 0);
}

async fn thousands_of_labels_that_fit_into_a_record_are_kept_and_found(store: Arc<dyn Store>) {
    let mut many = lease(1);
    many.labels = (0..4500).map(|number| (format!("{number:x}"), String::new())).collect();
    store.put_lease(&many).await.unwrap();
    let mut query = LeaseQuery { labels: many.labels, ..LeaseQuery::default() };
    assert_eq!(found(&*store, query.clone()).await, (ids([1]), 1));
    query.labels.insert("one more".to_owned(), String::new());
    assert_eq!(found(&*store, query).await, (vec![], 0));
}

async fn fifty_tasks_write_and_read_at_once(store: Arc<dyn Store>) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..50 {
        let store = store.clone();
        tasks.spawn(async move {
            for step in 0..10 {
                let number = task * 10 + step;
                store.put_lease(&lease(number)).await.unwrap();
                let one = LeaseQuery { limit: Some(1), ..LeaseQuery::default() };
                assert!(found(&*store, one).await.1 > 0);
            }
            store.put_key(&key(&format!("key-{task}"), &format!("word-{task}"))).await.unwrap();
        });
    }
    tokio::time::timeout(std::time::Duration::from_mins(1), async {
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
    })
    .await
    .unwrap();
    assert_eq!(found(&*store, LeaseQuery::default()).await.1, 500);
    for task in 0..50 {
        let hash = KeyHash::of(&Token::new(format!("word-{task}")));
        assert!(store.key(&hash).await.unwrap().is_some());
    }
}

async fn hostile_text_is_kept_as_it_is_and_does_nothing(store: Arc<dyn Store>) {
    let hostile = [
        "'; DROP TABLE leases; --",
        "\" OR 1=1",
        "$1 ?1 :a @b %_*",
        "a\0b",
        "\0",
        "",
        "🦀 ü \u{202e} \u{10ffff}",
        "\\' \\x00 \n\r\t",
        "{\"state\":\"running\"}",
    ];
    for (number, text) in (0..).zip(hostile) {
        let mut hostile = lease(number);
        hostile.template = text.to_owned();
        hostile.owner = Owner(text.to_owned());
        hostile.labels = Labels::from([(text.to_owned(), text.to_owned())]);
        store.put_lease(&hostile).await.unwrap();
        let key = ApiKey { owner: Owner(text.to_owned()), ..key(text, text) };
        store.put_key(&key).await.unwrap();
        assert_eq!(store.key(&key.hash).await.unwrap(), Some(key));
    }
    for (number, text) in (0..).zip(hostile) {
        let owner = Some(Owner(text.to_owned()));
        let labels = Labels::from([(text.to_owned(), text.to_owned())]);
        for query in [
            LeaseQuery { owner: owner.clone(), ..LeaseQuery::default() },
            LeaseQuery { labels, ..LeaseQuery::default() },
            LeaseQuery { template: Some(text.to_owned()), ..LeaseQuery::default() },
        ] {
            assert_eq!(found(&*store, query).await, (ids([number]), 1), "{text:?}");
        }
        let none = LeaseQuery { states: vec![text.to_owned()], ..LeaseQuery::default() };
        assert_eq!(found(&*store, none).await, (vec![], 0), "{text:?}");
        if !text.is_empty() {
            let none = LeaseQuery { prefix: Some(text.to_owned()), ..LeaseQuery::default() };
            assert_eq!(found(&*store, none).await, (vec![], 0), "{text:?}");
        }
    }
}
