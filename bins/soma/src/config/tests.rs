//! What settings come from, and which of them make no sense.

use super::*;

fn gather(
    text: &str,
    typed: &SettingArguments,
    variables: &[(&str, &str)],
) -> Result<Settings, Failure> {
    let variable = |name: &str| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    Settings::gather(&File::parse(text, "config.toml").unwrap(), typed, variable)
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
    let typed = SettingArguments { listen: Some("127.0.0.1:1".into()), ..Default::default() };
    let file = "listen = \"127.0.0.1:3\"";
    let variables = [("SOMA_LISTEN", "127.0.0.1:2")];
    let none = SettingArguments::default();
    for (settings, port, origin) in [
        (gather(file, &typed, &variables), 1, Origin::Flag),
        (gather(file, &none, &variables), 2, Origin::Environment("SOMA_LISTEN")),
        (gather(file, &none, &[]), 3, Origin::File),
        (gather("", &none, &[]), 7070, Origin::Default),
    ] {
        let listen = settings.unwrap().listen;
        assert_eq!(listen.value, Listen::At(SocketAddr::from(([127, 0, 0, 1], port))));
        assert_eq!(listen.origin, origin);
    }
}

#[test]
fn a_value_that_makes_no_sense_is_named_with_its_place() {
    let none = SettingArguments::default();
    let error = gather("\n\nlisten = \"everywhere\"", &none, &[]).unwrap_err();
    assert!(
        error.message.starts_with("`listen` in line 3 of config.toml: it has to be"),
        "{error}"
    );
    let error = gather("", &none, &[("SOMA_MAX_MEMORY", "lots")]).unwrap_err();
    assert!(error.message.starts_with("SOMA_MAX_MEMORY: "), "{error}");
    let error = gather("code_packages = [\"--pre\"]", &none, &[]).unwrap_err();
    assert!(error.message.contains("`--pre` is no package"), "{error}");
    let error = gather("log_format = \"xml\"", &none, &[]).unwrap_err();
    assert!(error.message.contains("log_format"), "{error}");
}

#[test]
fn every_key_can_be_set_in_the_file() {
    let text = "listen = \"off\"\ndomain = \"sbx.example\"\nhosts = [\"a\", \"b\"]\n\
                origins = [\"https://c\"]\nlog_level = \"debug\"\nlog_format = \"json\"\n\
                otlp_endpoint = \"http://c:4318\"\nmax_sandboxes = 5\nmax_memory = \"1g\"\n\
                max_cpus = 1.5\nmax_disk = \"2g\"\nallow_unenforced = false\nretention = \"1d\"\n\
                database = \"postgres://anna@localhost/memory\"\n\
                code_packages = [\"ipython\", \"six==1.16.0\"]\n";
    let settings = gather(text, &SettingArguments::default(), &[]).unwrap();
    assert_eq!(settings.hosts.value, Words(vec!["a".into(), "b".into()]));
    assert_eq!(settings.code_packages.value.to_string(), "ipython,six==1.16.0");
    assert_eq!(settings.max_cpus.value, MilliCpus(1500));
    assert_eq!(settings.rules().sandboxes, 5);
    assert!(!settings.rules().unenforced);
    assert_eq!(settings.retention.value, Time(Duration::from_hours(24)));
    assert_eq!(settings.database.value.to_string(), "postgres://anna@localhost:5432/memory");
}

#[test]
fn a_password_comes_from_the_environment_or_the_file_and_is_never_repeated() {
    let address = "postgres://anna:swordfish@localhost/memory";
    let none = SettingArguments::default();
    let set = gather("", &none, &[("SOMA_DATABASE", address)]).unwrap();
    assert!(!format!("{} {set:?}", set.database.value).contains("swordfish"));
    gather(&format!("database = \"{address}\""), &none, &[]).unwrap();
    let typed = SettingArguments { database: Some(address.into()), ..Default::default() };
    let error = gather("", &typed, &[]).unwrap_err();
    assert!(error.message.contains("seen by every user"), "{error}");
    for wrong in ["postgres://anna:swordfish@db.example/memory", "mysql://anna:swordfish@a/b"] {
        let error = gather("", &none, &[("SOMA_DATABASE", wrong)]).unwrap_err();
        assert!(error.message.starts_with("SOMA_DATABASE: "), "{error}");
        assert!(!format!("{error:?}").contains("swordfish"), "{error}");
    }
}

#[test]
fn the_section_of_the_network_becomes_a_configuration() {
    let text = "[network]\ngrants = [\"10.0.0.0/8\", \"192.168.1.7\"]\n\
                resolvers = [\"10.0.0.53\", \"[2001:db8::1]:5353\"]\n\
                proxy = \"http://anna:swordfish@proxy.example:3128\"\ndefault = \"deny-all\"\n";
    let none = SettingArguments::default();
    let settings = gather(text, &none, &[]).unwrap();
    let configuration = settings.network().unwrap();
    assert_eq!(configuration.grants.len(), 2);
    assert_eq!(configuration.resolvers[0], SocketAddr::from(([10, 0, 0, 53], 53)));
    assert_eq!(configuration.resolvers[1].port(), 5353);
    assert!(configuration.proxy.unwrap().expose().contains("swordfish"));
    assert_eq!(settings.network_default.value.0, domain::NetworkMode::DenyAll);
    assert_eq!(settings.network_proxy.value.to_string(), "http://proxy.example:3128");
    assert!(!format!("{settings:?}").contains("swordfish"));
    let usual = gather("", &none, &[]).unwrap();
    assert_eq!(usual.network().unwrap(), ::network::Configuration::default());
    assert_eq!(usual.network_default.value.0, domain::NetworkMode::AllowAll);
    let variables = [("SOMA_NETWORK_DEFAULT", "deny-all")];
    let told = gather("", &none, &variables).unwrap();
    assert_eq!(told.network_default.value.0, domain::NetworkMode::DenyAll);
}

#[test]
fn what_is_wrong_with_the_network_is_named_with_its_line_and_without_passwords() {
    let none = SettingArguments::default();
    for (text, line) in [
        ("[network]\ngrants = [\"10.0.0.0/40\"]", "`network.grants` in line 2"),
        ("listen = \"off\"\n[network]\nresolvers = [\"here\"]", "`network.resolvers` in line 3"),
        ("[network]\n\nproxy = \"ftp://a:swordfish@b:1\"", "`network.proxy` in line 3"),
        ("[network]\nproxy = \"http://a:swordfish@b\"", "`network.proxy` in line 2"),
        ("[network]\ndefault = \"custom\"", "`network.default` in line 2"),
        ("[network]\ncertificates = \"ca.pem\"", "`network.certificates` in line 2"),
    ] {
        let error = gather(text, &none, &[]).unwrap_err();
        assert!(error.message.starts_with(line), "{error}");
        assert!(!error.message.contains("swordfish"), "{error}");
    }
    let missing = gather("[network]\ncertificates = \"/nonexistent/ca.pem\"", &none, &[]).unwrap();
    let error = missing.network().unwrap_err();
    assert!(error.message.starts_with("`network.certificates`: /nonexistent/ca.pem"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, "-----BEGIN CERTIFICATE-----\n").unwrap();
    let text = format!("[network]\ncertificates = \"{}\"", path.display());
    assert!(gather(&text, &none, &[]).unwrap().network().unwrap().certificates.is_some());
}
