//! A bundle in an OCI image layout folder, as registries and their tools exchange them: an artifact whose one layer
//! is the bundle.
//!
//! Every blob is taken for what its digest says, and read only if it has it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{OCI_LAYOUT_INVALID, OCI_NO_BUNDLE};
use crate::digest;
use crate::error::Error;
use crate::platform;
use crate::release::journal;

/// The file that makes a folder an image layout.
pub(super) const MARKER: &str = "oci-layout";
/// Largest index or manifest.
const MAX_DOCUMENT_BYTES: u64 = 1024 * 1024;
/// How deep indexes may lie in indexes.
const MAX_DEPTH: usize = 3;
const INDEX_TYPES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Marker {
    image_layout_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Clone, Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

/// The blob that should be the bundle: the file, and the SHA-256 that it must have.
pub(super) struct Blob {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) sha256: String,
}

/// Finds the bundle in a layout.
pub(super) fn bundle(folder: &Path) -> Result<Blob, Error> {
    let marker: Marker = parse(MARKER, &read(&folder.join(MARKER), MARKER)?)?;
    if !marker.image_layout_version.starts_with("1.") {
        return Err(invalid(format!("it is a layout of version {:?}", marker.image_layout_version)));
    }
    let mut document = read(&folder.join("index.json"), "index.json")?;
    for _ in 0..MAX_DEPTH {
        let index: Index = parse("an index", &document)?;
        if index.schema_version != 2 {
            return Err(invalid(format!("an index has schema {}", index.schema_version)));
        }
        let chosen = choose(index.manifests)?;
        document = blob(folder, &chosen)?;
        if !INDEX_TYPES.contains(&chosen.media_type.as_str()) {
            return layer(folder, &document);
        }
    }
    Err(invalid("its indexes lie too deep in each other".into()))
}

/// The one image, or the one of several that is for this machine.
fn choose(mut manifests: Vec<Descriptor>) -> Result<Descriptor, Error> {
    let all = manifests.len();
    if all > 1 {
        manifests.retain(|one| one.platform.as_ref().is_some_and(Platform::is_here));
    }
    match <[Descriptor; 1]>::try_from(manifests) {
        Ok([one]) => Ok(one),
        Err(several) => Err(Error::new(
            &OCI_NO_BUNDLE,
            format!("the layout names {all} images, {} of them for this machine", several.len()),
        )),
    }
}

fn layer(folder: &Path, manifest: &[u8]) -> Result<Blob, Error> {
    let manifest: Manifest = parse("a manifest", manifest)?;
    if manifest.schema_version != 2 {
        return Err(invalid(format!("a manifest has schema {}", manifest.schema_version)));
    }
    let [layer] = manifest.layers.as_slice() else {
        return Err(Error::new(
            &OCI_NO_BUNDLE,
            format!("the image has {} layers, not one that is a bundle", manifest.layers.len()),
        ));
    };
    let (path, sha256) = blob_path(folder, layer)?;
    let file = open(&path, &layer.digest)?;
    let length = file.metadata().map_err(|error| invalid(format!("{}: {error}", layer.digest)))?.len();
    if length != layer.size {
        return Err(invalid(format!("{} has {length} bytes, not {}", layer.digest, layer.size)));
    }
    Ok(Blob { file, path, sha256 })
}

/// A small blob that has its digest.
fn blob(folder: &Path, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
    let (path, sha256) = blob_path(folder, descriptor)?;
    let bytes = read(&path, &descriptor.digest)?;
    if bytes.len() as u64 != descriptor.size || digest::of_bytes(&bytes) != sha256 {
        return Err(invalid(format!("{} does not have its digest or its size", descriptor.digest)));
    }
    Ok(bytes)
}

fn blob_path(folder: &Path, descriptor: &Descriptor) -> Result<(PathBuf, String), Error> {
    let sha256 = descriptor.digest.strip_prefix("sha256:").filter(|hex| digest::is_digest(hex));
    let sha256 = sha256.ok_or_else(|| {
        let shown: String = descriptor.digest.chars().take(100).collect();
        invalid(format!("{shown:?} is not a SHA-256 digest"))
    })?;
    Ok((folder.join("blobs").join("sha256").join(sha256), sha256.to_owned()))
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    open(path, what)?
        .take(MAX_DOCUMENT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| invalid(format!("{what}: {error}")))?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(invalid(format!("{what} is too large")));
    }
    Ok(bytes)
}

fn open(path: &Path, what: &str) -> Result<File, Error> {
    // A pipe in its place would never end.
    let found = std::fs::symlink_metadata(path).map_err(|error| invalid(format!("{what}: {error}")))?;
    if !found.is_file() {
        return Err(invalid(format!("{what} is not a file")));
    }
    platform::open_no_link(path).map_err(|error| invalid(format!("{what}: {error}")))
}

fn parse<T: for<'de> Deserialize<'de>>(what: &str, bytes: &[u8]) -> Result<T, Error> {
    journal::refuse_duplicate_keys(bytes)
        .and_then(|()| serde_json::from_slice(bytes).map_err(|error| error.to_string()))
        .map_err(|why| invalid(format!("{what}: {why}")))
}

fn invalid(why: String) -> Error {
    Error::new(&OCI_LAYOUT_INVALID, format!("the OCI layout is not valid: {why}"))
}

impl Platform {
    /// OCI has Go's names.
    fn is_here(&self) -> bool {
        let os = if self.os == "darwin" { "macos" } else { &self.os };
        let arch = match self.architecture.as_str() {
            "amd64" => "x86_64",
            "arm64" => "aarch64",
            other => other,
        };
        os == std::env::consts::OS && arch == std::env::consts::ARCH
    }
}
