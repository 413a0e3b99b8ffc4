//! What cargo knows about this workspace.

use std::path::PathBuf;

use serde_json::Value;

use crate::command::{Failure, cargo, output_of};

pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    metadata: Value,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self, Failure> {
        let text = output_of(&mut cargo(["metadata", "--format-version=1", "--no-deps"]))?;
        let metadata: Value = serde_json::from_str(&text)
            .map_err(|error| Failure::new(format!("`cargo metadata` is not JSON: {error}")))?;
        let path = |key: &str| {
            let text = metadata[key].as_str();
            text.map(PathBuf::from)
                .ok_or_else(|| Failure::new(format!("`cargo metadata` says nothing of `{key}`")))
        };
        Ok(Self { root: path("workspace_root")?, target: path("target_directory")?, metadata })
    }

    /// `cargo run -- …` must be the tool: exactly one binary among the default members.
    pub(crate) fn check_one_binary(&self) -> Result<(), Failure> {
        let names = binaries(&self.metadata);
        match names.as_slice() {
            [_] => Ok(()),
            _ => Err(Failure::new(format!(
                "the default members have {} binaries instead of one: {}",
                names.len(),
                names.join(", ")
            ))
            .hint("keep other programs out of `default-members` in Cargo.toml")),
        }
    }
}

fn binaries(metadata: &Value) -> Vec<&str> {
    let list = |value: &'_ Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let members = list(metadata, "workspace_default_members");
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    packages
        .iter()
        .filter(|package| members.contains(&package["id"]))
        .flat_map(|package| package["targets"].as_array().map_or(&[][..], Vec::as_slice))
        .filter(|target| list(target, "kind").contains(&Value::from("bin")))
        .filter_map(|target| target["name"].as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_binaries_of_default_members_only() {
        let target = |kind: &str, name: &str| serde_json::json!({ "kind": [kind], "name": name });
        let metadata = serde_json::json!({
            "workspace_default_members": ["a", "b"],
            "packages": [
                { "id": "a", "targets": [target("lib", "a"), target("test", "t")] },
                { "id": "b", "targets": [target("bin", "tool")] },
                { "id": "c", "targets": [target("bin", "other")] },
            ],
        });
        assert_eq!(binaries(&metadata), ["tool"]);
    }
}
