//! Filters, orders and pages.

use std::sync::Arc;

use domain::Labels;
use store::{Order, Sort};

use super::*;

both!(
    every_filter_leaves_what_matches_and_they_join,
    both_orders_go_up_and_down_and_ids_break_ties,
    a_page_knows_how_many_there_are_in_all,
);

fn any() -> LeaseQuery {
    LeaseQuery { order: Order::Ascending, ..LeaseQuery::default() }
}

fn labels<const N: usize>(labels: [(&str, &str); N]) -> Labels {
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Six sandboxes: 1, 3, 5 run and are red; 2, 4, 6 start and belong to `acme`.
async fn fill(store: &dyn Store) {
    for number in 1..=6 {
        let mut lease = if number % 2 == 1 { running(number) } else { lease(number) };
        if number % 2 == 1 {
            lease.labels = labels([("color", "red"), ("number", &number.to_string())]);
        } else {
            lease.owner = Owner("acme".to_owned());
            lease.template = "python".into();
            lease.name = Some(format!("box-{number}").parse().unwrap());
        }
        store.put_lease(&lease).await.unwrap();
    }
}

async fn every_filter_leaves_what_matches_and_they_join(store: Arc<dyn Store>) {
    fill(&*store).await;
    let acme = Some(Owner("acme".to_owned()));
    for (query, numbers) in [
        (any(), vec![1, 2, 3, 4, 5, 6]),
        (LeaseQuery { owner: acme.clone(), ..any() }, vec![2, 4, 6]),
        (LeaseQuery { states: vec!["running".into()], ..any() }, vec![1, 3, 5]),
        (
            LeaseQuery { states: vec!["running".into(), "starting".into()], ..any() },
            (1..7).collect(),
        ),
        (LeaseQuery { states: vec!["error".into()], ..any() }, vec![]),
        (LeaseQuery { labels: labels([("color", "red")]), ..any() }, vec![1, 3, 5]),
        (LeaseQuery { labels: labels([("color", "red"), ("number", "3")]), ..any() }, vec![3]),
        (LeaseQuery { labels: labels([("color", "3")]), ..any() }, vec![]),
        (LeaseQuery { template: Some("python".into()), ..any() }, vec![2, 4, 6]),
        (LeaseQuery { name: Some("box-4".parse().unwrap()), ..any() }, vec![4]),
        (LeaseQuery { prefix: Some(id(5).as_str().to_owned()), ..any() }, vec![5]),
        (LeaseQuery { prefix: Some("0000".into()), ..any() }, vec![1, 2, 3, 4, 5, 6]),
        (LeaseQuery { prefix: Some("1".into()), ..any() }, vec![]),
        (LeaseQuery { prefix: Some("%".into()), ..any() }, vec![]),
        (LeaseQuery { prefix: Some(String::new()), ..any() }, vec![1, 2, 3, 4, 5, 6]),
        (LeaseQuery { created_from: Some(Timestamp(4)), ..any() }, vec![4, 5, 6]),
        (
            LeaseQuery {
                owner: acme,
                states: vec!["starting".into()],
                template: Some("python".into()),
                created_from: Some(Timestamp(3)),
                ..any()
            },
            vec![4, 6],
        ),
    ] {
        let expected: Vec<_> = numbers.into_iter().map(id).collect();
        let total = expected.len() as u64;
        assert_eq!(found(&*store, query.clone()).await, (expected, total), "{query:?}");
    }
}

async fn both_orders_go_up_and_down_and_ids_break_ties(store: Arc<dyn Store>) {
    fill(&*store).await;
    let mut twin = running(7);
    twin.created_at = Timestamp(6);
    store.put_lease(&twin).await.unwrap();
    for (sort, upwards) in
        [(Sort::CreatedAt, [1, 2, 3, 4, 5, 6, 7]), (Sort::State, [1, 3, 5, 7, 2, 4, 6])]
    {
        let query = LeaseQuery { sort, ..any() };
        assert_eq!(found(&*store, query.clone()).await.0, ids(upwards), "{sort:?}");
        let mut downwards = ids(upwards);
        downwards.reverse();
        let query = LeaseQuery { order: Order::Descending, ..query };
        assert_eq!(found(&*store, query).await.0, downwards, "{sort:?}");
    }
}

async fn a_page_knows_how_many_there_are_in_all(store: Arc<dyn Store>) {
    fill(&*store).await;
    let page = |offset, limit| LeaseQuery { offset, limit, ..any() };
    for (query, numbers) in [
        (page(0, Some(2)), vec![1, 2]),
        (page(2, Some(2)), vec![3, 4]),
        (page(5, Some(2)), vec![6]),
        (page(4, None), vec![5, 6]),
        (page(6, Some(2)), vec![]),
        (page(0, Some(0)), vec![]),
        (page(u64::MAX, Some(u64::MAX)), vec![]),
        (page(1, Some(u64::MAX)), vec![2, 3, 4, 5, 6]),
    ] {
        let expected: Vec<_> = numbers.into_iter().map(id).collect();
        assert_eq!(found(&*store, query.clone()).await, (expected, 6), "{query:?}");
    }
}
