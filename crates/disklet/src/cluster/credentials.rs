//! Credentials that every request carries: where they cannot be carried, kube ends the
//! program.

use std::fs;

use hyper::header::HeaderValue;
use kube::config::AuthInfo;

use super::trouble::Trouble;

/// Takes the line ends from tokens, as kubectl does, and demands that the rest can be
/// carried.
///
/// # Errors
/// Something cannot.
pub(super) fn settle(user: &mut AuthInfo) -> Result<(), Trouble> {
    if let Some(token) = token_of(user)? {
        user.token = Some(token.into());
    }
    if let Some(provider) = &mut user.auth_provider {
        for field in ["id-token", "access-token"] {
            if let Some(token) = provider.config.get_mut(field) {
                *token = settled(token)?;
            }
        }
    }
    let groups = user.impersonate_groups.iter().flatten();
    let extra = user.impersonate_user_extra.iter().flatten();
    let extra = extra.flat_map(|(_, values)| values);
    let named = [
        (&user.impersonate, "the user to come as (--as)"),
        (&user.impersonate_uid, "the UID to come as (--as-uid)"),
    ];
    let named = named
        .into_iter()
        .filter_map(|(it, what)| Some((it.as_ref()?, what)));
    let groups = groups.map(|it| (it, "a group to come as (--as-group)"));
    let extra = extra.map(|it| (it, "as-user-extra of the kubeconfig"));
    for (value, what) in named.chain(groups).chain(extra) {
        if HeaderValue::from_str(value).is_err() {
            return Err(Trouble::new(format!(
                "{what} has a control character, or another that no request can carry"
            ))
            .help("letters, digits and signs of ASCII can be carried"));
        }
    }
    Ok(())
}

/// The token as it is to be sent, if that is known before.
fn token_of(user: &AuthInfo) -> Result<Option<String>, Trouble> {
    // A secret shows only when it is written down.
    let written = serde_json::to_value(user).unwrap_or_default();
    if let Some(token) = written["token"].as_str() {
        return settled(token).map(Some);
    }
    // Whoever has a file may have it changed while this runs, so it is read again then,
    // unless what is in it has to be settled. That it cannot be read is told there.
    let read = user
        .token_file
        .as_ref()
        .and_then(|path| fs::read_to_string(path).ok());
    match read {
        Some(token) => settled(&token).map(|settled| (settled != token).then_some(settled)),
        None => Ok(None),
    }
}

fn settled(token: &str) -> Result<String, Trouble> {
    let token = token.trim();
    match token.chars().any(char::is_control) {
        true => Err(Trouble::new("the token has a control character")
            .help("it is one line of letters, digits and signs")),
        false => Ok(token.to_owned()),
    }
}
