#include "hub/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/home_folder.h"
#include "base/text.h"

namespace weft::hub {
namespace {

constexpr size_t kMostName = 96;
constexpr size_t kMostPath = 1024;
constexpr size_t kMostComponent = 240;  // allows a suffix within the 255 bytes of Linux
constexpr size_t kMostToken = 4096;

bool IsNameLetter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

bool IsName(std::string_view name) {
    if (name.empty() || name.size() > kMostName) return false;
    if (name.front() == '.' || name.front() == '-' || name.find("..") != name.npos) return false;
    // The cache folder joins owner and name by two dashes.
    return name.find("--") == name.npos && std::ranges::all_of(name, IsNameLetter);
}

bool IsRevision(std::string_view revision) {
    return IsSafePath(revision) && std::ranges::all_of(revision, [](char c) {
               return IsNameLetter(c) || c == '/' || c == '+' || c == '#';
           });
}

std::string Env(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

// The values that huggingface_hub accepts as true.
bool IsYes(std::string_view word) {
    const std::string value = UpperCase(word);
    return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string FirstOf(std::initializer_list<std::string> values) {
    for (const std::string& value : values) {
        if (!value.empty()) return value;
    }
    return {};
}

// Expands "~/x" as shells do.
std::string Expanded(std::string path, const std::string& home) {
    return path.starts_with("~/") ? home + path.substr(1) : path;
}

// The token becomes an HTTP header, so it must not contain line ends.
Status CheckToken(const std::string& token, const std::string& source) {
    const bool plain = std::ranges::all_of(token, [](char c) { return c > ' ' && c < 127; });
    if (plain && token.size() <= kMostToken) return {};
    return MakeError(ErrorCode::kUsage, "{}: not a token: it has blanks or special characters",
                     source);
}

Status FindToken(Config& config, const std::string& hf_home, const std::string& home) {
    const std::string own = FirstOf({Env("HF_TOKEN"), Env("HUGGING_FACE_HUB_TOKEN")});
    config.token = Trim(own);
    if (!config.token.empty()) return CheckToken(config.token, "HF_TOKEN");
    const std::string path = Expanded(FirstOf({Env("HF_TOKEN_PATH"), hf_home + "/token"}), home);
    const auto text = ReadTextFile(path, kMostToken * 2);
    if (!text.ok()) return {};  // a token file is optional
    config.token = Trim(*text);
    return CheckToken(config.token, path);
}

// "OWNER/NAME@REVISION:FILE" from the URL of a Hub page, with or without https://, and with or
// without /tree/REVISION or /blob/REVISION/FILE; "": not such a URL.
std::string SpecOfPage(std::string_view word) {
    for (const std::string_view scheme : {"https://", "http://"}) {
        if (word.starts_with(scheme)) word.remove_prefix(scheme.size());
    }
    const size_t host = word.find('/');
    if (host == word.npos) return {};
    const std::string_view name = word.substr(0, host);
    if (name != "huggingface.co" && name != "hf.co" && name != "www.huggingface.co") return {};
    word = word.substr(host + 1, word.find_first_of("?#", host + 1) - host - 1);
    while (word.ends_with('/')) word.remove_suffix(1);
    for (const std::string_view kind : {"/tree/", "/blob/", "/resolve/"}) {
        const size_t at = word.find(kind);
        if (at == word.npos) continue;
        const std::string_view rest = word.substr(at + kind.size());
        const size_t end = std::min(rest.find('/'), rest.size());
        std::string spec = fmt::format("{}@{}", word.substr(0, at), rest.substr(0, end));
        if (end < rest.size()) spec += fmt::format(":{}", rest.substr(end + 1));
        return spec;
    }
    return std::string(word);
}

constexpr std::string_view kDatasets = "datasets/";

// OWNER/NAME[@REVISION][:CONFIG][/SPLIT]
Result<RepoSpec> ParseDataSpec(std::string_view rest, std::string_view word) {
    RepoSpec spec;
    spec.is_dataset = true;
    const auto take = [&](std::string_view ends) {
        const size_t end = std::min(rest.find_first_of(ends), rest.size());
        const std::string_view part = rest.substr(0, end);
        rest.remove_prefix(end);
        return part;
    };
    spec.owner = take("/");
    if (!rest.empty()) rest.remove_prefix(1);
    spec.name = take("@:/");
    bool good = IsName(spec.owner) && IsName(spec.name);
    if (rest.starts_with('@')) {
        rest.remove_prefix(1);
        const bool converted = rest.starts_with(kConvertedRevision);
        spec.revision = converted ? kConvertedRevision : take(":/");
        if (converted) rest.remove_prefix(spec.revision.size());
        good = good && IsRevision(spec.revision);
    }
    if (rest.starts_with(':')) {
        rest.remove_prefix(1);
        spec.what = take("/");
        good = good && IsName(spec.what);
    }
    if (rest.starts_with('/')) {
        spec.split = rest.substr(1);
        good = good && IsName(spec.split);
        rest = {};
    }
    if (good && rest.empty()) return spec;
    return MakeError(ErrorCode::kUsage,
                     "'{}' is not a data set of the Hub; expected "
                     "hf:datasets/OWNER/NAME[@REVISION][:CONFIG][/SPLIT], such as "
                     "hf:datasets/openai/gsm8k:main/train",
                     word.substr(0, 200));
}

}  // namespace

std::string RepoSpec::Text() const {
    std::string text = (is_dataset ? "hf:datasets/" : "hf:") + Repo();
    if (revision != "main") text += "@" + revision;
    if (!what.empty()) text += ":" + what;
    if (is_dataset && split != "train") text += "/" + split;
    return text;
}

bool IsSpec(std::string_view word) {
    return word.starts_with("hf:");
}

bool IsDataSpec(std::string_view word) {
    return word.starts_with("hf:datasets/");
}

bool IsSafePath(std::string_view path) {
    if (path.empty() || path.size() > kMostPath) return false;
    for (const char c : path) {
        if (static_cast<unsigned char>(c) < 32 || c == 127 || c == '\\') return false;
    }
    for (size_t at = 0; at <= path.size();) {
        const size_t end = std::min(path.find('/', at), path.size());
        const std::string_view part = path.substr(at, end - at);
        if (part.empty() || part == "." || part == ".." || part.size() > kMostComponent)
            return false;
        at = end + 1;
    }
    return true;
}

bool IsCommit(std::string_view revision) {
    return revision.size() == 40 && std::ranges::all_of(revision, [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

Result<RepoSpec> ParseSpec(std::string_view word) {
    std::string_view rest = word;
    if (IsSpec(rest)) rest.remove_prefix(3);
    const std::string of_page = SpecOfPage(rest);
    if (!of_page.empty()) rest = of_page;
    if (rest.starts_with(kDatasets)) return ParseDataSpec(rest.substr(kDatasets.size()), word);
    RepoSpec spec;
    if (const size_t colon = rest.find(':'); colon != rest.npos) {
        spec.what = rest.substr(colon + 1);
        rest = rest.substr(0, colon);
        if (!IsSafePath(spec.what)) rest = {};
    }
    if (const size_t at = rest.find('@'); at != rest.npos) {
        spec.revision = rest.substr(at + 1);
        rest = rest.substr(0, at);
    }
    const size_t slash = rest.find('/');
    if (slash != rest.npos) {
        spec.owner = rest.substr(0, slash);
        spec.name = rest.substr(slash + 1);
    }
    if (IsName(spec.owner) && IsName(spec.name) && IsRevision(spec.revision)) return spec;
    return MakeError(ErrorCode::kUsage,
                     "'{}' is not a model of the Hub; expected [hf:]OWNER/NAME[@REVISION][:FILE or "
                     "QUANTIZATION], such as hf:Qwen/Qwen3-8B-GGUF:Q4_K_M, or the URL of its page",
                     word.substr(0, 200));
}

void Config::SetTimeout(int64_t ms) {
    timeout_ms = ms;
    connect_ms = std::min<int64_t>(connect_ms, std::max<int64_t>(ms / 2, 100));
    stall_ms = std::min<int64_t>(stall_ms, std::max<int64_t>(ms / 2, 100));
}

Result<Config> ConfigFromEnvironment() {
    Config config;
    const std::string home = FirstOf({HomeFolder(), "."});
    const std::string caches = FirstOf({Env("XDG_CACHE_HOME"), home + "/.cache"});
    const std::string hf_home = Expanded(FirstOf({Env("HF_HOME"), caches + "/huggingface"}), home);
    config.cache = Expanded(
        FirstOf({Env("HF_HUB_CACHE"), Env("HUGGINGFACE_HUB_CACHE"), hf_home + "/hub"}), home);
    config.ca_file = FirstOf({Env("SSL_CERT_FILE"), Env("CURL_CA_BUNDLE")});
    config.ca_folder = Env("SSL_CERT_DIR");
    config.offline = IsYes(Env("HF_HUB_OFFLINE")) || IsYes(Env("TRANSFORMERS_OFFLINE"));
    const std::string endpoint_word = Env("HF_ENDPOINT");
    if (const std::string endpoint(Trim(endpoint_word)); !endpoint.empty()) {
        config.endpoint = endpoint;
        while (config.endpoint.ends_with('/')) config.endpoint.pop_back();
        if (!endpoint.starts_with("https://") && !endpoint.starts_with("http://")) {
            return MakeError(ErrorCode::kUsage, "HF_ENDPOINT is '{}'; expected https://HOST[:PORT]",
                             endpoint);
        }
    }
    WEFT_TRY(FindToken(config, hf_home, home));
    return config;
}

}  // namespace weft::hub
