//! A browser that is told what to do by the DevTools protocol, over two pipes: messages of JSON that end with a zero byte.
//!
//! ```text
//!  this program ── stdin ──▶ sh: descriptor 3 ──▶ chromium --remote-debugging-pipe
//!               ◀─ stdout ── sh: descriptor 4 ◀──
//! ```
//!
//! The shell in between gives the browser the two descriptors that it wants. No port is opened, and nobody else can connect.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a browser may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// No network, no questions, no traces outside the profile.
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// A browser with one tab.
pub(super) struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    events: Vec<Value>,
    session: Option<String>,
    last: u64,
    /// Removed when the browser has ended.
    _profile: TempDir,
}

impl Browser {
    /// Starts it.
    pub(super) fn start(program: &str) -> anyhow::Result<Self> {
        let profile = tempfile::tempdir().context("there is no room for the browser's profile")?;
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", program]).args(FLAGS);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("there is no sh to start the browser")?;
        let input = child.stdin.take().context("the browser has no input")?;
        let output = child.stdout.take().context("the browser has no output")?;
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut message = Vec::new();
                if !output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                    return;
                }
                message.pop();
                if serde_json::from_slice(&message).map(|value| sender.send(value)).is_ok_and(|sent| sent.is_err()) {
                    return;
                }
            }
        });
        let mut browser =
            Self { child, input, messages, events: Vec::new(), session: None, last: 0, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }))?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Asks for something, and waits for the answer.
    pub(super) fn call(&mut self, method: &str, parameters: Value) -> anyhow::Result<Value> {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.input.write_all(&bytes).and_then(|()| self.input.flush()).context("the browser has ended")?;
        let answer = self.wait_for(method, |message| message["id"] == id)?;
        match answer.get("error") {
            Some(error) => bail!("the browser refuses {method}: {error}"),
            None => Ok(answer["result"].clone()),
        }
    }

    /// Waits for a message; keeps the events that come before it.
    fn wait_for(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let start = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(start.elapsed());
            let message = self.messages.recv_timeout(left).with_context(|| match self.child.try_wait() {
                Ok(Some(status)) => format!("the browser has ended ({status}) before {what}"),
                _ => format!("the browser has not answered {what} for {} s", PATIENCE.as_secs()),
            })?;
            if is_it(&message) {
                return Ok(message);
            }
            if message.get("method").is_some() {
                self.events.push(message);
            }
        }
    }

    /// Opens a file, and waits until it is loaded. Events from before are forgotten.
    pub(super) fn open(&mut self, path: &Path) -> anyhow::Result<()> {
        self.events.clear();
        let answer = self.call("Page.navigate", json!({ "url": format!("file://{}", path.display()) }))?;
        if let Some(reason) = answer["errorText"].as_str() {
            bail!("{} cannot be opened: {reason}", path.display());
        }
        let is_loaded = |message: &Value| message["method"] == "Page.loadEventFired";
        if !self.events.iter().any(is_loaded) {
            self.wait_for("loading the page", is_loaded)?;
        }
        Ok(())
    }

    /// The value of an expression, after it if it is a promise.
    pub(super) fn value_of(&mut self, expression: &str) -> anyhow::Result<Value> {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", parameters)?;
        match answer.get("exceptionDetails") {
            Some(details) => bail!("{}", details["exception"]["description"].as_str().unwrap_or("an exception")),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// A window of this size, for a reader who likes light or dark, on a screen.
    pub(super) fn look(&mut self, theme: &str, width: u32) -> anyhow::Result<()> {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": "screen", "features": features }))?;
        Ok(())
    }

    /// Presses a key that has no text, such as `Tab`.
    pub(super) fn press(&mut self, key: &str, code: u32) -> anyhow::Result<()> {
        for kind in ["keyDown", "keyUp"] {
            let mut parameters = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if key == "Enter" && kind == "keyDown" {
                parameters["text"] = json!("\r");
            }
            self.call("Input.dispatchKeyEvent", parameters)?;
        }
        Ok(())
    }

    /// What pages have complained of since they were opened, and what they have asked the network for.
    pub(super) fn complaints(&self) -> Vec<String> {
        let complaint = |event: &Value| {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => {
                    let details = &parameters["exceptionDetails"];
                    let thrown = details["exception"]["description"].as_str().or_else(|| details["text"].as_str());
                    Some(format!("exception: {}", thrown.unwrap_or("of no kind")))
                }
                "Runtime.consoleAPICalled" => {
                    let kind =
                        parameters["type"].as_str().filter(|kind| ["error", "warning", "assert"].contains(kind))?;
                    Some(format!("console: {kind}: {}", parameters["args"][0]["value"]))
                }
                "Log.entryAdded" => {
                    let entry = &parameters["entry"];
                    let level = entry["level"].as_str().filter(|level| ["error", "warning"].contains(level))?;
                    Some(format!("log: {level}: {}", entry["text"].as_str().unwrap_or_default()))
                }
                "Network.requestWillBeSent" => {
                    let url = parameters["request"]["url"].as_str()?;
                    let is_own =
                        url.starts_with("file:") && parameters["type"] == "Document" || url.starts_with("data:");
                    (!is_own).then(|| format!("network: the page asks for {url}"))
                }
                _ => None,
            }
        };
        self.events.iter().filter_map(complaint).collect()
    }

    /// The page as a picture, all of it.
    pub(super) fn picture(&mut self) -> anyhow::Result<Vec<u8>> {
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }))?;
        decoded(answer["data"].as_str().unwrap_or_default()).context("the browser's picture is not base64")
    }

    /// The page on paper.
    pub(super) fn printed(&mut self) -> anyhow::Result<Vec<u8>> {
        let answer = self.call("Page.printToPDF", json!({ "printBackground": true }))?;
        decoded(answer["data"].as_str().unwrap_or_default()).context("the browser's PDF is not base64")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        // The children of the browser end with it where it ends by itself.
        let asked = self.call("Browser.close", json!({})).is_ok();
        for _ in 0..if asked { 50 } else { 0 } {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bytes that base64 stands for.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for character in text.trim_end_matches('=').bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_bytes() {
        for (text, bytes) in [("", &b""[..]), ("JVBERi0=", b"%PDF-"), ("+/8A", &[0xfb, 0xff, 0x00]), ("QQ==", b"A")] {
            assert_eq!(decoded(text).unwrap(), bytes);
        }
        assert_eq!(decoded("a-b"), None);
    }
}
