//! What happened, in a few words.

use api_v1::events::Happening;

/// What happened, without whether it worked.
pub(crate) fn of(event: &Happening) -> String {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match event.what.as_str() {
        "creation_asked" => match &event.name {
            Some(name) => format!("asked for, as {name}"),
            None => "asked for".to_owned(),
        },
        "creation_failed" => "not made".to_owned(),
        "state_changed" => text(&event.state),
        "found" => format!("found {}", text(&event.state)),
        "missing" => "not found again".to_owned(),
        "timeout_set" => match &event.until {
            Some(until) => format!("may run until {until}"),
            None => "may run for ever".to_owned(),
        },
        "timeout_failed" => "time not set".to_owned(),
        "limits_set" => {
            let memory = event.memory.unwrap_or_default();
            let (cpus, pids) = (event.vcpu.unwrap_or_default(), event.pids.unwrap_or_default());
            format!("may use {memory} MiB, {cpus} processors, {pids} processes")
        }
        "limits_failed" => "limits not set".to_owned(),
        "network_changed" => {
            let mode = match event.network {
                Some(api_v1::network::NetworkMode::AllowAll) => "may reach everything",
                Some(api_v1::network::NetworkMode::Custom) => "may reach what is listed",
                Some(api_v1::network::NetworkMode::DenyAll) | None => "may reach nothing",
            };
            match &event.summary {
                Some(summary) => format!("{mode}; {summary}"),
                None => mode.to_owned(),
            }
        }
        "network_failed" => "network not set".to_owned(),
        "start_failed" => "not started".to_owned(),
        "stop_failed" => "not stopped".to_owned(),
        "deletion_failed" => "not deleted".to_owned(),
        "name_taken_off" => format!("no longer named {}", text(&event.name)),
        other => other.to_owned(),
    }
}
