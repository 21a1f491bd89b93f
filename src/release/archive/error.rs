//! Why a bundle is refused, a code a shape.

use crate::error::{CodeDoc, Coded};

/// A refused bundle.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ArchiveError {
    doc: &'static CodeDoc,
    message: String,
}

impl ArchiveError {
    pub(in crate::release) fn new(doc: &'static CodeDoc, message: impl Into<String>) -> Self {
        Self { doc, message: message.into() }
    }

    pub(super) fn io(error: std::io::Error) -> Self {
        Self::new(&BUNDLE_READ_FAILED, format!("the bundle cannot be read: {error}"))
    }
}

impl Coded for ArchiveError {
    fn doc(&self) -> &'static CodeDoc {
        self.doc
    }
}

// What is hostile or broken is never mended: the remedy is another copy of the bundle.
crate::codes! {
    BUNDLE_READ_FAILED { exit: Unexpected, retryable: true,
        cause: "The system failed to read the bundle.",
        remedy: "Check the disk and the permissions of the file, and run the same command again." }
    BUNDLE_NOT_AN_ARCHIVE { exit: VerificationFailed, retryable: false,
        cause: "The file is no zip archive, so it is no bundle.",
        remedy: "Name a file that ends in .mcpb, a folder with an unpacked bundle, or an OCI layout folder." }
    BUNDLE_TRUNCATED { exit: VerificationFailed, retryable: false,
        cause: "The bundle ends before its end record: a download that was cut off, or bytes put behind it.",
        remedy: "Get the bundle again and compare its SHA-256 with the published one." }
    BUNDLE_TRAILING_BYTES { exit: VerificationFailed, retryable: false,
        cause: "Bytes follow the end of the bundle, for instance a signature of `mcpb sign`. Readers disagree on such files.",
        remedy: "Get the unsigned bundle; signatures of this project lie beside it, never in it." }
    BUNDLE_PREFIX_BYTES { exit: VerificationFailed, retryable: false,
        cause: "Bytes lie before the first file of the bundle, as in self-extracting archives. Readers disagree on such files.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_COMMENT { exit: VerificationFailed, retryable: false,
        cause: "The archive or one of its entries has a comment, in which another archive can hide.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_MULTI_DISK { exit: VerificationFailed, retryable: false,
        cause: "The bundle says that it is one part of several.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_ZIP64 { exit: VerificationFailed, retryable: false,
        cause: "The bundle uses the format for archives beyond 4 GiB, which no bundle needs and which hides other sizes from some readers.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_TOO_MANY_FILES { exit: VerificationFailed, retryable: false,
        cause: "The bundle has more than 1,024 entries.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_TOO_LARGE { exit: VerificationFailed, retryable: false,
        cause: "A file of the bundle is larger than 2 GiB, or all of them are larger than 4 GiB.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_BOMB { exit: VerificationFailed, retryable: false,
        cause: "A file of the bundle would grow more than a hundredfold when it is unpacked, as no program does.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_DIRECTORY_INVALID { exit: VerificationFailed, retryable: false,
        cause: "The directory at the end of the bundle is not what its end record says.",
        remedy: "Get the bundle again and compare its SHA-256 with the published one." }
    BUNDLE_GAP { exit: VerificationFailed, retryable: false,
        cause: "Bytes of the bundle belong to no file; another reader could find files in them.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_OVERLAP { exit: VerificationFailed, retryable: false,
        cause: "Two files of the bundle share bytes, as in archives that are made to explode.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_HEADERS_DIFFER { exit: VerificationFailed, retryable: false,
        cause: "The bundle describes a file twice, in two ways, so two readers would find two different files.",
        remedy: "Get the bundle again and compare its SHA-256 with the published one." }
    BUNDLE_ENCRYPTED { exit: VerificationFailed, retryable: false,
        cause: "A file of the bundle is encrypted.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_METHOD { exit: VerificationFailed, retryable: false,
        cause: "A file of the bundle is neither stored nor deflated, or needs a feature that readers do not share.",
        remedy: "Get the bundle again from where it was published; to install one that was packed anew, unpack it and name the folder." }
    BUNDLE_DATA_DESCRIPTOR { exit: VerificationFailed, retryable: false,
        cause: "The sizes of a file stand behind it instead of before it, so they can lie to readers that go from front to back.",
        remedy: "Get the bundle again from where it was published; to install one that was packed anew, unpack it and name the folder." }
    BUNDLE_EXTRA_FIELD { exit: VerificationFailed, retryable: false,
        cause: "An entry has an extra field, which can give the file another name or size for some readers.",
        remedy: "Get the bundle again from where it was published; to install one that was packed anew, unpack it and name the folder." }
    BUNDLE_NOT_A_FILE { exit: VerificationFailed, retryable: false,
        cause: "An entry is a link, a device or has set-id bits, as a release never has.",
        remedy: "Do not install it, and tell the one who gave it to you." }
    BUNDLE_FOLDER_ENTRY { exit: VerificationFailed, retryable: false,
        cause: "An entry is a folder. A bundle holds files only, and some hosts cannot unpack a folder.",
        remedy: "Get the bundle again from where it was published; to install one that was packed anew, unpack it and name the folder." }
    BUNDLE_NAME_CONTROL { exit: VerificationFailed, retryable: false,
        cause: "The name of a file holds a control character, a zero or a mark that hides text.",
        remedy: "Do not install it, and tell the one who gave it to you." }
    BUNDLE_NAME_BACKSLASH { exit: VerificationFailed, retryable: false,
        cause: "The name of a file holds a backslash, which is a separator on one system and a letter on another.",
        remedy: "Do not install it, and tell the one who gave it to you." }
    BUNDLE_NAME_ENCODING { exit: VerificationFailed, retryable: false,
        cause: "The name of a file is not marked as UTF-8 or is not UTF-8, so readers would give it different names.",
        remedy: "Get the bundle again from where it was published." }
    BUNDLE_NAME_ABSOLUTE { exit: VerificationFailed, retryable: false,
        cause: "The name of a file begins at the root of a disk, so it would be written outside the release.",
        remedy: "Do not install it, and tell the one who gave it to you." }
    BUNDLE_NAME_TRAVERSAL { exit: VerificationFailed, retryable: false,
        cause: "The name of a file leads upwards, so it would be written outside the release.",
        remedy: "Do not install it, and tell the one who gave it to you." }
    BUNDLE_NAME_RESERVED { exit: VerificationFailed, retryable: false,
        cause: "The name of a file is not plain: a device or a stream of Windows, empty, too long, or with a dot or a space at its end.",
        remedy: "Do not install it, and tell the one who gave it to you." }
    BUNDLE_NAME_TWICE { exit: VerificationFailed, retryable: false,
        cause: "Two entries of the bundle have the same name, or one is a file where another needs a folder.",
        remedy: "Do not install it, and tell the one who gave it to you." }
    BUNDLE_NAME_CASE { exit: VerificationFailed, retryable: false,
        cause: "Two names in the bundle differ only in case, so one file would replace the other on some systems.",
        remedy: "Do not install it, and tell the one who gave it to you." }
    BUNDLE_CONFIG_INSIDE { exit: VerificationFailed, retryable: false,
        cause: "The bundle holds server/config.json, a config that would override the operator's.",
        remedy: "Do not install it, and tell the one who gave it to you." }
    BUNDLE_SIZE_LIES { exit: VerificationFailed, retryable: false,
        cause: "A file of the bundle has another size than its entry says.",
        remedy: "Get the bundle again and compare its SHA-256 with the published one." }
    BUNDLE_STREAM_INVALID { exit: VerificationFailed, retryable: false,
        cause: "A compressed file of the bundle is damaged, or other bytes follow it inside its entry.",
        remedy: "Get the bundle again and compare its SHA-256 with the published one." }
    BUNDLE_CHECKSUM { exit: VerificationFailed, retryable: false,
        cause: "A file of the bundle does not have the checksum that its entry says.",
        remedy: "Get the bundle again and compare its SHA-256 with the published one." }
    BUNDLE_READERS_DISAGREE { exit: VerificationFailed, retryable: false,
        cause: "A second reader finds other files in the bundle than the first.",
        remedy: "Do not install it, and report it: this is a defect of one of the two readers." }
    BUNDLE_METADATA_MISSING { exit: VerificationFailed, retryable: false,
        cause: "There is no release-metadata.json, so nothing says what the release is.",
        remedy: "Name a bundle of this project; other bundles are installed by your MCP host." }
    BUNDLE_FILE_UNLISTED { exit: VerificationFailed, retryable: false,
        cause: "A file is there that the metadata do not pin.",
        remedy: "Get the bundle again and compare its SHA-256 with the published one." }
    BUNDLE_FILE_MISSING { exit: VerificationFailed, retryable: false,
        cause: "A file that the metadata pin is not there.",
        remedy: "Get the bundle again and compare its SHA-256 with the published one." }
    BUNDLE_FILE_DIFFERS { exit: VerificationFailed, retryable: false,
        cause: "A file has another size or another SHA-256 than the metadata pin.",
        remedy: "Get the bundle again and compare its SHA-256 with the published one." }
    BUNDLE_IDENTITY_MISMATCH { exit: VerificationFailed, retryable: false,
        cause: "manifest.json is of another version, revision or program than release-metadata.json.",
        remedy: "Get the bundle again from where it was published." }
}
