// Names on the Hugging Face Hub, and where a user's settings say they are kept.
//
// A model there is written
//     [hf:]OWNER/NAME[@REVISION][:FILE or QUANTIZATION]
// such as hf:unsloth/Qwen3-8B-GGUF:Q4_K_M. All parts are checked here: they become parts of URLs
// and of paths, so no `..`, no blanks, no control characters.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::hub {

struct RepoSpec {
    std::string owner, name;
    std::string revision = "main";  // branch, tag, refs/pr/N or commit
    std::string what;               // a file's path, a quantization's name, or empty

    std::string Repo() const { return owner + "/" + name; }
    std::string Text() const;  // as the user could have written it, with "hf:"
};

// Whether a MODEL word means the Hub: it starts with "hf:".
bool IsSpec(std::string_view word);
// kUsage with the form expected. The "hf:" may be missing.
Result<RepoSpec> ParseSpec(std::string_view word);
// A relative path of plain components, no longer than a file system takes: safe to be created.
bool IsSafePath(std::string_view path);
// Whether this is the full name of a commit: 40 hexadecimal digits.
bool IsCommit(std::string_view revision);

// Where the Hub is, who asks, and how patient.
struct Config {
    std::string endpoint = "https://huggingface.co";  // no '/' at the end
    std::string token;                                // sent to the endpoint's origin only
    std::string cache;                                // the folder shared with huggingface_hub
    std::string ca_file, ca_folder;                   // trusted certificates; empty: the system's
    int connections = 8;                              // of one file at a time
    int64_t connect_ms = 10'000;
    int64_t stall_ms = 20'000;     // a connection slower than 1 KiB/s for so long is given up
    int64_t timeout_ms = 120'000;  // the whole pull is, after so long without progress
    bool offline = false;          // ask nobody: what is in the cache folder is all there is
    const std::atomic<bool>* stop = nullptr;  // Ctrl-C; may be null

    bool Stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
    // Sets timeout_ms and the other two in proportion, never above their defaults.
    void SetTimeout(int64_t ms);
};

// HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME, SSL_CERT_FILE,
// SSL_CERT_DIR, CURL_CA_BUNDLE and HF_HUB_OFFLINE (TRANSFORMERS_OFFLINE), with the meanings that
// huggingface_hub gives them. kUsage where one of them can't be meant so.
Result<Config> ConfigFromEnvironment();

}  // namespace weft::hub
