//! The promises of [`Provider`], checked on every provider.
//!
//! A provider is enrolled with one line (`keeps_its_promises!`); it names a [`Place`], which
//! makes instances on one backend. Each promise is a function here and becomes a test of each
//! provider. Commands are few and plain, so that every provider has them.

use std::time::Duration;

use bytes::Bytes;
use domain::{Ending, Lifetime, Limit, Limits, SandboxId, SandboxSpec};
use futures::future::join_all;
use guest_proto::client::{Ended, Event, Running, StartOptions};
use guest_proto::process::Signal;
use guest_proto::{GuestClient, GuestError};
use provider::fake::FakeBackend;
use provider::{Condition, LARGEST_RECORD, ProviderError};

use crate::support::Operated;

/// A backend of its own for one test, gone with it.
trait Place {
    /// One more instance on the backend.
    async fn instance(&self) -> Operated;
}

impl Place for FakeBackend {
    async fn instance(&self) -> Operated {
        Operated::new(self.provider())
    }
}

impl Place for crate::support::Home {
    async fn instance(&self) -> Operated {
        self.provider()
    }
}

/// Makes a test of each promise for one provider.
macro_rules! conformance {
    ($provider:ident, $place:expr, [$($promise:ident),* $(,)?]) => {
        mod $provider {
            $(
                #[tokio::test]
                async fn $promise() {
                    super::$promise($place).await;
                }
            )*
        }
    };
}

/// Enrols a provider for every promise.
macro_rules! keeps_its_promises {
    ($provider:ident, $place:expr) => {
        conformance!(
            $provider,
            $place,
            [
                the_guest_answers_when_create_has,
                creating_twice_gives_one_sandbox,
                creating_at_the_same_time_gives_one_sandbox,
                destroying_twice_is_a_success,
                destroy_frees_the_id_and_its_files,
                destroy_during_create_leaves_nothing_half_made,
                destroy_ends_what_runs,
                a_create_that_was_given_up_is_finished_or_undone,
                an_id_that_is_not_there_is_not_found,
                list_and_inspect_show_what_is_there,
                a_second_instance_finds_and_uses_the_same,
                a_sandbox_with_its_caller_goes_with_it,
                a_kept_sandbox_outlives_its_caller,
                exit_codes_are_the_commands_own,
                a_signal_ends_a_command_and_is_named,
                a_command_over_its_time_is_ended,
                output_arrives_on_its_own_stream,
                standard_input_reaches_the_command_and_ends,
                a_program_that_is_not_there_says_so,
                an_unknown_user_and_folder_are_refused,
                processes_can_be_listed_and_followed,
                files_can_be_written_read_listed_and_removed,
                the_variables_of_a_sandbox_are_known_in_it,
                sandboxes_do_not_see_each_others_files,
                twenty_sandboxes_live_at_once,
                a_record_comes_back_and_can_be_replaced,
                the_record_of_the_first_create_counts,
                a_record_that_is_too_large_is_refused,
                many_records_can_be_read_at_once,
                an_end_is_told_to_all_who_wait_for_it,
                who_waits_for_an_end_may_give_up,
                the_end_of_what_is_destroyed_is_not_found,
                a_renewed_sandbox_lives_longer_or_shorter,
                what_ended_cannot_be_renewed,
                limits_change_while_it_runs_or_not_at_all,
            ]
        );
    };
}

keeps_its_promises!(fake, provider::fake::FakeBackend::new());
keeps_its_promises!(native, crate::support::Home::new());

async fn the_guest_answers_when_create_has(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    provider.create(&id, &kept()).await.unwrap();
    provider.guest(&id).health().await.unwrap();
    provider.destroy(&id).await.unwrap();
}

async fn creating_twice_gives_one_sandbox(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    provider.create(&id, &kept()).await.unwrap();
    let guest = provider.guest(&id);
    write(&guest, "/tmp/mark", b"first").await;
    provider.create(&id, &kept()).await.unwrap();
    assert_eq!(read(&guest, "/tmp/mark").await, b"first");
    assert_eq!(provider.list().await.unwrap().len(), 1);
    provider.destroy(&id).await.unwrap();
}

async fn creating_at_the_same_time_gives_one_sandbox(place: impl Place) {
    let (one, other, id) = (place.instance().await, place.instance().await, id());
    let spec = kept();
    let outcomes =
        tokio::join!(one.create(&id, &spec), one.create(&id, &spec), other.create(&id, &spec));
    assert!(matches!(outcomes, (Ok(_), Ok(_), Ok(_))), "{outcomes:?}");
    assert_eq!(one.list().await.unwrap().len(), 1);
    write(&one.guest(&id), "/tmp/mark", b"same").await;
    assert_eq!(read(&other.guest(&id), "/tmp/mark").await, b"same");
    one.destroy(&id).await.unwrap();
}

async fn destroying_twice_is_a_success(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    provider.destroy(&id).await.unwrap();
    provider.create(&id, &kept()).await.unwrap();
    let outcomes = tokio::join!(provider.destroy(&id), provider.destroy(&id));
    assert!(matches!(outcomes, (Ok(()), Ok(()))), "{outcomes:?}");
    provider.destroy(&id).await.unwrap();
    assert_eq!(provider.list().await.unwrap(), []);
}

async fn destroy_frees_the_id_and_its_files(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    provider.create(&id, &kept()).await.unwrap();
    write(&provider.guest(&id), "/tmp/mark", b"old").await;
    provider.destroy(&id).await.unwrap();
    provider.create(&id, &kept()).await.unwrap();
    let fresh = provider.guest(&id);
    let gone = fresh.stat("/tmp/mark", None).await.unwrap_err();
    assert!(matches!(gone, GuestError::NotFound { .. }), "{gone:?}");
    provider.destroy(&id).await.unwrap();
}

async fn destroy_during_create_leaves_nothing_half_made(place: impl Place) {
    let provider = place.instance().await;
    let spec = kept();
    for _ in 0..5 {
        let id = id();
        let (created, destroyed) = tokio::join!(provider.create(&id, &spec), provider.destroy(&id));
        destroyed.unwrap();
        // Either came first; what is seen now is one or the other, and usable if it is there.
        match provider.inspect(&id).await {
            Ok(_) => provider.guest(&id).health().await.unwrap(),
            Err(ProviderError::NotFound { .. }) => drop(created),
            Err(error) => panic!("{error:?}"),
        }
        provider.destroy(&id).await.unwrap();
    }
    assert_eq!(provider.list().await.unwrap(), []);
}

async fn destroy_ends_what_runs(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    provider.create(&id, &kept()).await.unwrap();
    let guest = provider.guest(&id);
    let mut running = start(&guest, "sleep", &["600"]).await;
    assert!(matches!(running.next().await, Ok(Some(Event::Started { .. }))));
    provider.destroy(&id).await.unwrap();
    let told = bounded(running.next()).await;
    assert!(!matches!(told, Ok(Some(Event::Ended(Ended { code: 0, .. })))), "{told:?}");
}

async fn a_create_that_was_given_up_is_finished_or_undone(place: impl Place) {
    let provider = place.instance().await;
    let spec = kept();
    for microseconds in [0, 100, 1_000, 5_000, 20_000] {
        let id = id();
        let patience = Duration::from_micros(microseconds);
        let _ = tokio::time::timeout(patience, provider.create(&id, &spec)).await;
        // Asked again, it is there; destroyed, it is gone.
        provider.create(&id, &spec).await.unwrap();
        provider.guest(&id).health().await.unwrap();
        provider.destroy(&id).await.unwrap();
    }
    assert_eq!(provider.list().await.unwrap(), []);
}

async fn an_id_that_is_not_there_is_not_found(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    let Err(error) = provider.connect(&id).await else { panic!("connected to nothing") };
    assert!(matches!(&error, ProviderError::NotFound { id: named } if *named == id), "{error:?}");
    let error = provider.inspect(&id).await.unwrap_err();
    assert!(matches!(&error, ProviderError::NotFound { id: named } if *named == id), "{error:?}");
}

async fn list_and_inspect_show_what_is_there(place: impl Place) {
    let provider = place.instance().await;
    assert_eq!(provider.list().await.unwrap(), []);
    let mut ids = [id(), id(), id()];
    for id in &ids {
        provider.create(id, &kept()).await.unwrap();
    }
    ids.sort();
    let listed = provider.list().await.unwrap();
    assert_eq!(listed.iter().map(|seen| seen.id.clone()).collect::<Vec<_>>(), ids);
    assert!(listed.iter().all(|seen| seen.condition == Condition::Running), "{listed:?}");
    assert_eq!(provider.inspect(&ids[1]).await.unwrap(), listed[1]);
    for id in &ids {
        provider.destroy(id).await.unwrap();
    }
}

async fn a_second_instance_finds_and_uses_the_same(place: impl Place) {
    let (one, id) = (place.instance().await, id());
    one.create(&id, &kept()).await.unwrap();
    write(&one.guest(&id), "/tmp/mark", b"seen").await;
    let other = place.instance().await;
    assert_eq!(other.list().await.unwrap(), one.list().await.unwrap());
    assert_eq!(read(&other.guest(&id), "/tmp/mark").await, b"seen");
    other.destroy(&id).await.unwrap();
    assert!(matches!(one.inspect(&id).await, Err(ProviderError::NotFound { .. })));
}

async fn a_sandbox_with_its_caller_goes_with_it(place: impl Place) {
    let (caller, witness, id) = (place.instance().await, place.instance().await, id());
    let spec = SandboxSpec { lifetime: Lifetime::WithCaller, ..kept() };
    caller.create(&id, &spec).await.unwrap();
    witness.inspect(&id).await.unwrap();
    drop(caller);
    // It goes by itself, so there is no answer to wait for.
    for _ in 0..500 {
        if matches!(witness.inspect(&id).await, Err(ProviderError::NotFound { .. })) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{id} is still there");
}

async fn a_kept_sandbox_outlives_its_caller(place: impl Place) {
    let (caller, witness, id) = (place.instance().await, place.instance().await, id());
    caller.create(&id, &kept()).await.unwrap();
    drop(caller);
    tokio::time::sleep(Duration::from_millis(100)).await;
    witness.guest(&id).health().await.unwrap();
    witness.destroy(&id).await.unwrap();
}

async fn exit_codes_are_the_commands_own(place: impl Place) {
    in_a_sandbox(place, async |guest| {
        assert_eq!(run(&guest, "true", &[]).await.code, 0);
        assert_eq!(run(&guest, "false", &[]).await.code, 1);
        assert_eq!(run(&guest, "sh", &["-c", "exit 42"]).await.code, 42);
    })
    .await;
}

async fn a_signal_ends_a_command_and_is_named(place: impl Place) {
    in_a_sandbox(place, async |guest| {
        for signal in [Signal::SIGNAL_SIGTERM, Signal::SIGNAL_SIGKILL, Signal::SIGNAL_SIGINT] {
            let mut running = start(&guest, "sleep", &["600"]).await;
            let pid = started(&mut running).await;
            guest.signal(pid, signal).await.unwrap();
            let ended = all(running).await.ended;
            assert_eq!((ended.code, ended.signal), (-1, Some(signal as i32)));
        }
    })
    .await;
}

async fn a_command_over_its_time_is_ended(place: impl Place) {
    in_a_sandbox(place, async |guest| {
        let mut options = options("sleep", &["600"]);
        options.timeout = Some(Duration::from_millis(300));
        let mut running = guest.start(options).await.unwrap();
        started(&mut running).await;
        let error = bounded(running.next()).await.unwrap_err();
        assert!(matches!(error, GuestError::DeadlineExceeded { .. }), "{error:?}");
        assert_eq!(guest.list().await.unwrap().len(), 0);
    })
    .await;
}

async fn output_arrives_on_its_own_stream(place: impl Place) {
    in_a_sandbox(place, async |guest| {
        let seen = all(start(&guest, "echo", &["hello"]).await).await;
        assert_eq!((seen.stdout.as_slice(), seen.stderr.as_slice()), (&b"hello\n"[..], &b""[..]));
        let seen = all(start(&guest, "cat", &["/nothing"]).await).await;
        assert_eq!((seen.stdout.len(), seen.ended.code), (0, 1));
        assert!(String::from_utf8_lossy(&seen.stderr).contains("/nothing"));
    })
    .await;
}

async fn standard_input_reaches_the_command_and_ends(place: impl Place) {
    in_a_sandbox(place, async |guest| {
        let mut options = options("cat", &[]);
        options.stdin = true;
        let mut running = guest.start(options).await.unwrap();
        let pid = started(&mut running).await;
        // Not UTF-8, and more than a pipe holds.
        let sent: Vec<u8> = (0..200_000).map(|number: u32| number.to_le_bytes()[0]).collect();
        let feeding = async {
            for piece in sent.chunks(30_000) {
                guest.send_input(pid, piece).await.unwrap();
            }
            guest.close_stdin(pid).await.unwrap();
        };
        let (seen, ()) = tokio::join!(all(running), feeding);
        assert!(seen.stdout == sent, "{} of {} bytes", seen.stdout.len(), sent.len());
        assert_eq!(seen.ended.code, 0);
    })
    .await;
}

async fn a_program_that_is_not_there_says_so(place: impl Place) {
    in_a_sandbox(place, async |guest| {
        let ended = run(&guest, "there-is-no-such-program", &[]).await;
        assert_eq!((ended.code, ended.exec_errno), (127, Some(2)));
    })
    .await;
}

async fn an_unknown_user_and_folder_are_refused(place: impl Place) {
    in_a_sandbox(place, async |guest| {
        let mut wrong = options("true", &[]);
        wrong.user = Some("nobody-here".to_owned());
        let error = first_error(&guest, wrong).await;
        assert!(matches!(error, GuestError::UnknownUser { .. }), "{error:?}");
        let mut wrong = options("true", &[]);
        wrong.cwd = Some("/nowhere".to_owned());
        let error = first_error(&guest, wrong).await;
        assert!(matches!(error, GuestError::InvalidArgument { .. }), "{error:?}");
        assert!(error.to_string().contains("/nowhere"), "{error}");
    })
    .await;
}

async fn processes_can_be_listed_and_followed(place: impl Place) {
    in_a_sandbox(place, async |guest| {
        let mut running = start(&guest, "sleep", &["600"]).await;
        let pid = started(&mut running).await;
        let listed = guest.list().await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].pid, pid);
        // Nobody listens for a while, and the process goes on.
        drop(running);
        let mut again = guest.connect(pid).await.unwrap();
        assert_eq!(started(&mut again).await, pid);
        guest.signal(pid, Signal::SIGNAL_SIGKILL).await.unwrap();
        assert_eq!(all(again).await.ended.signal, Some(9));
        let error = guest.signal(4_000_000, Signal::SIGNAL_SIGKILL).await.unwrap_err();
        assert!(matches!(error, GuestError::NotFound { .. }), "{error:?}");
    })
    .await;
}

async fn files_can_be_written_read_listed_and_removed(place: impl Place) {
    in_a_sandbox(place, async |guest| {
        write(&guest, "/tmp/a b/ü.bin", b"\x00\xff body").await;
        assert_eq!(read(&guest, "/tmp/a b/ü.bin").await, b"\x00\xff body");
        assert_eq!(guest.stat("/tmp/a b/ü.bin", None).await.unwrap().size, 7);
        guest.make_dir("/tmp/a b/empty", None).await.unwrap();
        let error = guest.make_dir("/tmp/a b/empty", None).await.unwrap_err();
        assert!(matches!(error, GuestError::AlreadyExists { .. }), "{error:?}");
        let names = async || {
            let entries = guest.list_dir("/tmp/a b", 1, None).await.unwrap();
            entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
        };
        assert_eq!(names().await, ["empty", "ü.bin"]);
        guest.move_("/tmp/a b/ü.bin", "/tmp/a b/moved", None).await.unwrap();
        assert_eq!(names().await, ["empty", "moved"]);
        guest.remove("/tmp/a b/empty", None).await.unwrap();
        assert_eq!(names().await, ["moved"]);
        guest.remove("/tmp/a b", None).await.unwrap();
        guest.remove("/tmp/a b", None).await.unwrap();
        let error = guest.download("/tmp/a b/moved", None).await.unwrap_err();
        assert!(matches!(error, GuestError::NotFound { .. }), "{error:?}");
    })
    .await;
}

async fn the_variables_of_a_sandbox_are_known_in_it(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    let mut spec = kept();
    spec.environment.insert("COLOUR".to_owned(), "dark green".to_owned());
    provider.create(&id, &spec).await.unwrap();
    let known = provider.guest(&id).environment().await.unwrap();
    assert_eq!(known.get("COLOUR").map(String::as_str), Some("dark green"));
    provider.destroy(&id).await.unwrap();
}

async fn sandboxes_do_not_see_each_others_files(place: impl Place) {
    let provider = place.instance().await;
    let (one, other) = (id(), id());
    provider.create(&one, &kept()).await.unwrap();
    provider.create(&other, &kept()).await.unwrap();
    write(&provider.guest(&one), "/tmp/mark", b"mine").await;
    let error = provider.guest(&other).stat("/tmp/mark", None).await.unwrap_err();
    assert!(matches!(error, GuestError::NotFound { .. }), "{error:?}");
    provider.destroy(&one).await.unwrap();
    provider.destroy(&other).await.unwrap();
}

async fn twenty_sandboxes_live_at_once(place: impl Place) {
    let provider = place.instance().await;
    let ids: Vec<SandboxId> = (0..20).map(|_| id()).collect();
    let live = async |id: &SandboxId| {
        provider.create(id, &kept()).await.unwrap();
        let guest = provider.guest(id);
        let seen = all(start(&guest, "echo", &[id.as_str()]).await).await;
        assert_eq!(seen.stdout, format!("{id}\n").into_bytes());
    };
    join_all(ids.iter().map(live)).await;
    assert_eq!(provider.list().await.unwrap().len(), 20);
    for outcome in join_all(ids.iter().map(|id| provider.destroy(id))).await {
        outcome.unwrap();
    }
    assert_eq!(provider.list().await.unwrap(), []);
}

async fn a_record_comes_back_and_can_be_replaced(place: impl Place) {
    let (provider, other, id) = (place.instance().await, place.instance().await, id());
    for lifetime in [Lifetime::Kept, Lifetime::WithCaller] {
        let spec = SandboxSpec { lifetime, ..kept() };
        provider.create_with(&id, &spec, "{\"first\": \"ü\"}").await.unwrap();
        assert_eq!(other.read_record(&id).await.unwrap(), "{\"first\": \"ü\"}");
        let largest = "x".repeat(LARGEST_RECORD);
        other.write_record(&id, &largest).await.unwrap();
        assert!(provider.read_record(&id).await.unwrap() == largest);
        provider.write_record(&id, "").await.unwrap();
        assert_eq!(other.read_record(&id).await.unwrap(), "");
        provider.destroy(&id).await.unwrap();
        let error = provider.read_record(&id).await.unwrap_err();
        assert!(matches!(error, ProviderError::NotFound { .. }), "{error:?}");
        let error = provider.write_record(&id, "late").await.unwrap_err();
        assert!(matches!(error, ProviderError::NotFound { .. }), "{error:?}");
    }
}

async fn the_record_of_the_first_create_counts(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    provider.create_with(&id, &kept(), "first").await.unwrap();
    provider.create_with(&id, &kept(), "second").await.unwrap();
    assert_eq!(provider.read_record(&id).await.unwrap(), "first");
    provider.destroy(&id).await.unwrap();
    provider.create(&id, &kept()).await.unwrap();
    assert_eq!(provider.read_record(&id).await.unwrap(), "");
    provider.destroy(&id).await.unwrap();
}

async fn a_record_that_is_too_large_is_refused(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    // The second one is more than fits into one message to an engine.
    for bytes in [LARGEST_RECORD + 1, 10 * LARGEST_RECORD] {
        let large = "x".repeat(bytes);
        let error = provider.create_with(&id, &kept(), &large).await.unwrap_err();
        assert!(matches!(error, ProviderError::Invalid { .. }), "{error:?}");
        assert_eq!(provider.list().await.unwrap(), []);
        provider.create_with(&id, &kept(), "small").await.unwrap();
        let error = provider.write_record(&id, &large).await.unwrap_err();
        assert!(matches!(error, ProviderError::Invalid { .. }), "{error:?}");
        assert_eq!(provider.read_record(&id).await.unwrap(), "small");
        provider.destroy(&id).await.unwrap();
    }
}

async fn many_records_can_be_read_at_once(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    // It would be gone if it lost its caller over the reading.
    let spec = SandboxSpec { lifetime: Lifetime::WithCaller, ..kept() };
    let largest = "x".repeat(LARGEST_RECORD);
    provider.create_with(&id, &spec, &largest).await.unwrap();
    for read in join_all((0..200).map(|_| provider.read_record(&id))).await {
        assert!(read.unwrap() == largest);
    }
    provider.destroy(&id).await.unwrap();
}

async fn an_end_is_told_to_all_who_wait_for_it(place: impl Place) {
    let (provider, other, id) = (place.instance().await, place.instance().await, id());
    let error = provider.ended(&id).await.unwrap_err();
    assert!(matches!(&error, ProviderError::NotFound { id: named } if *named == id), "{error:?}");

    provider.create(&id, &lasting(Some(300))).await.unwrap();
    let (one, two, foreign) =
        bounded(async { tokio::join!(provider.ended(&id), provider.ended(&id), other.ended(&id)) })
            .await;
    for ending in [one, two, foreign] {
        assert_eq!(ending.unwrap(), Ending::TimedOut);
    }
    // Who asks later hears the same, and sees it.
    assert_eq!(bounded(provider.ended(&id)).await.unwrap(), Ending::TimedOut);
    let seen = provider.inspect(&id).await.unwrap();
    assert_eq!(seen.condition, Condition::Ended(Ending::TimedOut));
    assert_eq!(provider.list().await.unwrap(), [seen]);
    let Err(error) = provider.connect(&id).await else { panic!("connected to what ended") };
    assert!(matches!(error, ProviderError::NotRunning { .. }), "{error:?}");
    provider.destroy(&id).await.unwrap();
}

async fn who_waits_for_an_end_may_give_up(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    provider.create(&id, &kept()).await.unwrap();
    // More often than anybody remembers.
    for _ in 0..2000 {
        let waiting = provider.ended(&id);
        let waited = tokio::time::timeout(Duration::from_micros(1), waiting).await;
        assert!(waited.is_err(), "{waited:?}");
    }
    provider.renew(&id, Some(Duration::from_millis(50))).await.unwrap();
    assert_eq!(bounded(provider.ended(&id)).await.unwrap(), Ending::TimedOut);
    provider.destroy(&id).await.unwrap();
}

async fn the_end_of_what_is_destroyed_is_not_found(place: impl Place) {
    let (provider, other, id) = (place.instance().await, place.instance().await, id());
    provider.create(&id, &kept()).await.unwrap();
    let (told, destroyed) = bounded(async {
        let destroying = async {
            tokio::task::yield_now().await;
            other.destroy(&id).await
        };
        tokio::join!(provider.ended(&id), destroying)
    })
    .await;
    destroyed.unwrap();
    assert!(matches!(told, Err(ProviderError::NotFound { .. })), "{told:?}");
}

async fn a_renewed_sandbox_lives_longer_or_shorter(place: impl Place) {
    let provider = place.instance().await;
    let (longer, shorter, forever) = (id(), id(), id());
    provider.create(&longer, &lasting(Some(700))).await.unwrap();
    provider.renew(&longer, Some(Duration::from_mins(10))).await.unwrap();
    provider.create(&forever, &lasting(Some(700))).await.unwrap();
    provider.renew(&forever, None).await.unwrap();
    // Longer than the two would have had without.
    provider.create(&shorter, &lasting(None)).await.unwrap();
    provider.renew(&shorter, Some(Duration::from_secs(1))).await.unwrap();
    assert_eq!(bounded(provider.ended(&shorter)).await.unwrap(), Ending::TimedOut);
    for id in [&longer, &forever] {
        assert_eq!(provider.inspect(id).await.unwrap().condition, Condition::Running);
        provider.guest(id).health().await.unwrap();
        // At once is a time too.
        provider.renew(id, Some(Duration::ZERO)).await.unwrap();
        assert_eq!(bounded(provider.ended(id)).await.unwrap(), Ending::TimedOut);
    }
    for id in [&longer, &shorter, &forever] {
        provider.destroy(id).await.unwrap();
    }
}

async fn what_ended_cannot_be_renewed(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    let error = provider.renew(&id, None).await.unwrap_err();
    assert!(matches!(error, ProviderError::NotFound { .. }), "{error:?}");
    provider.create(&id, &lasting(Some(100))).await.unwrap();
    bounded(provider.ended(&id)).await.unwrap();
    let error = provider.renew(&id, Some(Duration::from_mins(1))).await.unwrap_err();
    let timed_out = |error: &ProviderError| {
        matches!(error, ProviderError::NotRunning { why: Ending::TimedOut, .. })
    };
    assert!(timed_out(&error), "{error:?}");
    // What is written down with it can be read and changed until it is destroyed.
    provider.write_record(&id, "ended").await.unwrap();
    assert_eq!(provider.read_record(&id).await.unwrap(), "ended");
    provider.destroy(&id).await.unwrap();
}

async fn limits_change_while_it_runs_or_not_at_all(place: impl Place) {
    let (provider, id) = (place.instance().await, id());
    let usual = Limits::default();
    let error = provider.limit(&id, &usual).await.unwrap_err();
    assert!(matches!(error, ProviderError::NotFound { .. }), "{error:?}");
    provider.create(&id, &kept()).await.unwrap();
    let unenforced = provider.inspect(&id).await.unwrap().unenforced;
    let more = Limits { memory: domain::Bytes::gibibytes(3), ..usual.clone() };
    match provider.limit(&id, &more).await {
        Ok(()) => provider.limit(&id, &more).await.unwrap(),
        // What nothing holds it to is not changed either.
        Err(error) => {
            assert!(unenforced.contains(&Limit::Memory), "{error:?}");
            assert!(matches!(error, ProviderError::Unenforced { .. }), "{error:?}");
        }
    }
    for wrong in [
        Limits { disk: domain::Bytes::gibibytes(20), ..usual.clone() },
        Limits { inodes: Some(4000), ..usual.clone() },
        Limits { open_files: Some(99), ..usual.clone() },
        Limits { pids: 0, ..usual.clone() },
    ] {
        let error = provider.limit(&id, &wrong).await.unwrap_err();
        assert!(matches!(error, ProviderError::Invalid { .. }), "{error:?}");
    }
    assert_eq!(run(&provider.guest(&id), "true", &[]).await.code, 0);
    provider.destroy(&id).await.unwrap();
}

/// A sandbox with so many milliseconds, or without an end.
fn lasting(milliseconds: Option<u64>) -> SandboxSpec {
    let timeout = milliseconds.map(Duration::from_millis);
    SandboxSpec { limits: Limits { timeout, ..Limits::default() }, ..kept() }
}

/// What a command did from beginning to end.
struct Seen {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    ended: Ended,
}

async fn in_a_sandbox(place: impl Place, story: impl AsyncFnOnce(GuestClient)) {
    let (provider, id) = (place.instance().await, id());
    provider.create(&id, &kept()).await.unwrap();
    story(provider.guest(&id)).await;
    provider.destroy(&id).await.unwrap();
}

fn id() -> SandboxId {
    let mut bits = [0; 15];
    rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty()).unwrap();
    SandboxId::from_random(bits)
}

fn kept() -> SandboxSpec {
    // A user's sandboxes cannot be held to all limits.
    SandboxSpec { lifetime: Lifetime::Kept, allow_unenforced: true, ..SandboxSpec::default() }
}

fn options(cmd: &str, args: &[&str]) -> StartOptions {
    let args = args.iter().map(ToString::to_string).collect();
    StartOptions { cmd: cmd.to_owned(), args, ..StartOptions::default() }
}

async fn start(guest: &GuestClient, cmd: &str, args: &[&str]) -> Running {
    guest.start(options(cmd, args)).await.unwrap()
}

async fn started(running: &mut Running) -> u32 {
    match bounded(running.next()).await.unwrap() {
        Some(Event::Started { pid }) => pid,
        other => panic!("{other:?} came before the start"),
    }
}

pub(crate) async fn run(guest: &GuestClient, cmd: &str, args: &[&str]) -> Ended {
    all(start(guest, cmd, args).await).await.ended
}

/// What a command wrote to its standard output.
pub(crate) async fn output_of(guest: &GuestClient, cmd: &str, args: &[&str]) -> String {
    String::from_utf8(all(start(guest, cmd, args).await).await.stdout).unwrap()
}

async fn all(mut running: Running) -> Seen {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match bounded(running.next()).await.unwrap().expect("an end comes last") {
            Event::Stdout(bytes) => stdout.extend_from_slice(&bytes),
            Event::Stderr(bytes) => stderr.extend_from_slice(&bytes),
            Event::Ended(ended) => return Seen { stdout, stderr, ended },
            Event::Started { .. }
            | Event::Terminal(_)
            | Event::Dropped { .. }
            | Event::Exited(_) => {}
        }
    }
}

/// A refusal may come with the call or as its first event.
async fn first_error(guest: &GuestClient, options: StartOptions) -> GuestError {
    match guest.start(options).await {
        Err(error) => error,
        Ok(mut running) => bounded(running.next()).await.unwrap_err(),
    }
}

async fn write(guest: &GuestClient, path: &str, body: &'static [u8]) {
    let body = futures::stream::iter([Ok(Bytes::from_static(body))]);
    guest.upload(path, None, body).await.unwrap();
}

async fn read(guest: &GuestClient, path: &str) -> Vec<u8> {
    let mut download = guest.download(path, None).await.unwrap();
    let mut body = Vec::new();
    while let Some(bytes) = download.next().await.unwrap() {
        body.extend_from_slice(&bytes);
    }
    body
}

async fn bounded<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it does not hang")
}
