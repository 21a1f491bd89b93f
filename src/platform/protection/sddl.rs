//! Access lists of Windows in their text form (SDDL): what is allowed to whom. Text only, so every system tests it.

use super::{Fault, FaultKind};

/// Those who may always have access: the system itself and administrators, who could take it anyway.
const TRUSTED: [&str; 4] = ["SY", "S-1-5-18", "BA", "S-1-5-32-544"];
/// Full control in its spellings.
const FULL: [&str; 3] = ["FA", "0x1f01ff", "0x001f01ff"];

/// One entry of an access list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry<'a> {
    kind: &'a str,
    flags: &'a str,
    rights: &'a str,
    sid: &'a str,
}

/// The access list in a text such as `O:…D:P(A;OICI;FA;;;SY)`: its flags and its entries. None if there is no list at
/// all, which allows everything to everybody.
fn access_list(sddl: &str) -> Option<(&str, Vec<Entry<'_>>)> {
    let start = sddl.find("D:")?;
    let list = sddl.get(start + 2..)?;
    let list = list.split("S:").next().unwrap_or(list);
    let flags = list.split('(').next().unwrap_or_default();
    if flags.contains("NO_ACCESS_CONTROL") {
        return None;
    }
    let entries = list
        .split('(')
        .skip(1)
        .filter_map(|entry| {
            let fields: Vec<&str> = entry.split(')').next()?.split(';').collect();
            let [kind, flags, rights, _, _, sid, ..] = fields.as_slice() else { return None };
            Some(Entry { kind, flags, rights, sid })
        })
        .collect();
    Some((flags, entries))
}

/// What is wrong with an access list. `user` are the spellings of the user's SID.
pub(super) fn faults(permissions: &str, user: &[String], is_root: bool) -> Vec<Fault> {
    let Some((flags, entries)) = access_list(permissions) else {
        return vec![Fault::new(
            FaultKind::Permissions,
            "it has no access list: everybody may do everything",
        )];
    };
    let mut faults = Vec::new();
    if is_root && !flags.contains('P') {
        faults.push(Fault::new(FaultKind::Inheritance, "it inherits from the folder above"));
    }
    let is_user = |sid: &str| user.iter().any(|own| own.eq_ignore_ascii_case(sid));
    let is_full = |rights: &str| FULL.iter().any(|full| full.eq_ignore_ascii_case(rights));
    for entry in &entries {
        let trusted = is_user(entry.sid) || TRUSTED.contains(&entry.sid);
        if entry.kind.starts_with('D') || entry.kind == "XD" || entry.kind == "OD" {
            faults.push(Fault::new(FaultKind::Permissions, format!("something is denied to {}", entry.sid)));
        } else if !trusted {
            faults.push(Fault::new(FaultKind::Permissions, format!("{} may access it", entry.sid)));
        }
    }
    // An entry that is only for what is made in a folder grants nothing on the folder.
    let grants = |entry: &&Entry<'_>| entry.kind == "A" && is_user(entry.sid) && !entry.flags.contains("IO");
    if !entries.iter().filter(grants).any(|entry| is_full(entry.rights)) {
        faults.push(Fault::new(FaultKind::Permissions, "its user has not full control"));
    }
    faults
}

/// The list that allows the user, the system and administrators everything, and nobody else anything.
pub(super) fn private(user: &str, is_folder: bool) -> String {
    let flags = if is_folder { "OICI" } else { "" };
    [user, "SY", "BA"].iter().fold("D:P".to_owned(), |list, sid| format!("{list}(A;{flags};FA;;;{sid})"))
}

/// Whether the list keeps out what the folder above would hand down.
pub(super) fn is_protected(sddl: &str) -> bool {
    access_list(sddl).is_some_and(|(flags, _)| flags.contains('P'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "S-1-5-21-1-2-3-1001";

    fn kinds(sddl: &str, is_root: bool) -> Vec<FaultKind> {
        faults(sddl, &[USER.to_owned(), "LA".to_owned()], is_root).iter().map(|fault| fault.kind).collect()
    }

    #[test]
    fn what_is_private_is_compliant_with_the_system_or_without() {
        for folder in [true, false] {
            assert_eq!(kinds(&private(USER, folder), true), []);
        }
        assert!(is_protected(&private(USER, true)));
        assert_eq!(kinds(&format!("O:{USER}D:PAI(A;OICI;FA;;;{USER})"), true), [], "stricter is as good");
        assert_eq!(kinds("O:LAD:P(A;;0x1f01ff;;;LA)(A;;FA;;;SY)", false), []);
        assert_eq!(
            kinds(&format!("D:AI(A;OICIID;FA;;;SY)(A;OICIID;FA;;;BA)(A;OICIID;FA;;;{USER})"), false),
            []
        );
    }

    #[test]
    fn whoever_else_has_access_is_found() {
        use FaultKind::{Inheritance, Permissions};
        assert_eq!(kinds(&format!("D:AI(A;OICIID;FA;;;{USER})"), true), [Inheritance]);
        assert_eq!(kinds(&format!("D:P(A;;FA;;;{USER})(A;;FR;;;BU)"), false), [Permissions]);
        assert_eq!(kinds(&format!("D:P(A;;FA;;;{USER})(A;;0x1200a9;;;S-1-1-0)"), false), [Permissions]);
        assert_eq!(kinds(&format!("D:P(D;;FA;;;WD)(A;;FA;;;{USER})"), false), [Permissions]);
        assert_eq!(kinds("D:P(A;;FA;;;SY)(A;;FA;;;BA)", false), [Permissions], "the user must have access");
        assert_eq!(kinds(&format!("D:P(A;OICIIO;FA;;;{USER})"), false), [Permissions]);
        assert_eq!(kinds(&format!("D:P(A;;FR;;;{USER})"), false), [Permissions]);
        assert_eq!(kinds("O:BAG:BA", false), [Permissions], "no list at all");
        assert_eq!(kinds("D:NO_ACCESS_CONTROL", false), [Permissions]);
        assert_eq!(kinds("D:P", false), [Permissions], "an empty list");
    }
}
