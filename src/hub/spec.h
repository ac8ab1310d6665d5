// Names of models and data sets on the Hugging Face Hub, and the user's settings for it.
//
// A model is written
//     [hf:]OWNER/NAME[@REVISION][:FILE or QUANTIZATION]
// such as hf:unsloth/Qwen3-8B-GGUF:Q4_K_M; a data set is written
//     hf:datasets/OWNER/NAME[@REVISION][:CONFIG][/SPLIT]
// such as hf:datasets/openai/gsm8k:main/test (the split train if none is named). All parts are
// checked here, since they become parts of URLs and paths: no `..`, no blanks, no control
// characters.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::hub {

// The branch in which the Hub keeps data sets converted to Parquet files:
// CONFIG/SPLIT/0000.parquet.
inline constexpr const char* kConvertedRevision = "refs/convert/parquet";

struct RepoSpec {
    std::string owner, name;
    std::string revision = "main";  // branch, tag, refs/pr/N or commit
    std::string what;               // a file's path, a quantization name, or empty
    // For a data set, `what` is the configuration, or empty.
    bool is_dataset = false;
    std::string split = "train";

    std::string Repo() const { return owner + "/" + name; }
    std::string Text() const;  // as a user would write it, with "hf:"
};

// Whether a MODEL argument means the Hub: it starts with "hf:".
bool IsSpec(std::string_view word);
// "hf:" is optional. Errors: kUsage, with the expected form.
Result<RepoSpec> ParseSpec(std::string_view word);
// Whether a word of --data means the Hub: it starts with "hf:datasets/".
bool IsDataSpec(std::string_view word);
// Whether it is a relative path of plain components, short enough for a file system: safe to
// create.
bool IsSafePath(std::string_view path);
// Whether this is the full name of a commit: 40 hexadecimal digits.
bool IsCommit(std::string_view revision);

// The Hub's address, the user's token, the cache, and time-outs.
struct Config {
    std::string endpoint = "https://huggingface.co";  // no '/' at the end
    std::string token;                                // sent only to the endpoint's origin
    std::string cache;                                // the folder shared with huggingface_hub
    std::string ca_file, ca_folder;                   // trusted certificates; empty: the system's
                                                      // certificates
    int connections = 8;                              // per file
    int64_t connect_ms = 10'000;
    int64_t stall_ms = 20'000;     // a connection slower than 1 KiB/s for this long is closed
    int64_t timeout_ms = 120'000;  // the pull fails after this long without progress
    bool offline = false;          // use no network: only the cache folder
    const std::atomic<bool>* stop = nullptr;  // Ctrl-C; may be null

    bool Stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
    // Sets timeout_ms, and scales the other two time-outs in proportion, up to their defaults.
    void SetTimeout(int64_t ms);
};

// Reads HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME, SSL_CERT_FILE,
// SSL_CERT_DIR, CURL_CA_BUNDLE and HF_HUB_OFFLINE (TRANSFORMERS_OFFLINE), with the same meanings as
// in huggingface_hub. Errors: kUsage for an invalid value.
Result<Config> ConfigFromEnvironment();

}  // namespace weft::hub
