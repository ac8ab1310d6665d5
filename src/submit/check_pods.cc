// Finds manifest fields that the API server, or later a kubelet, would reject.
#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "base/utf8.h"
#include "submit/job.h"
#include "submit/pods.h"

namespace weft::submit {
namespace {

constexpr size_t kMostLabel = 63;

bool IsDigit(char c) {
    return c >= '0' && c <= '9';
}

bool IsSmall(char c) {
    return (c >= 'a' && c <= 'z') || IsDigit(c);
}

bool IsLetter(char c) {
    return IsSmall(c) || (c >= 'A' && c <= 'Z');
}

// Lower-case letters, digits and `more`; the first and last characters are letters or digits.
bool IsDnsWord(std::string_view text, size_t most, std::string_view more) {
    const auto good = [&](char c) { return IsSmall(c) || more.find(c) != more.npos; };
    return !text.empty() && text.size() <= most && IsSmall(text.front()) && IsSmall(text.back()) &&
           std::ranges::all_of(text, good);
}

// [PREFIX/]NAME, the syntax of labels and resources.
bool IsQualifiedName(std::string_view text) {
    const size_t slash = text.find('/');
    if (slash != text.npos && !IsDnsWord(text.substr(0, slash), 253, "-.")) return false;
    const std::string_view name = slash == text.npos ? text : text.substr(slash + 1);
    const auto good = [](char c) { return IsLetter(c) || c == '-' || c == '_' || c == '.'; };
    return !name.empty() && name.size() <= kMostLabel && IsLetter(name.front()) &&
           IsLetter(name.back()) && std::ranges::all_of(name, good);
}

// The value of a label or taint; "" is allowed.
bool IsLabelValue(std::string_view text) {
    return text.empty() || (text.find('/') == text.npos && IsQualifiedName(text));
}

bool IsVariable(std::string_view text) {
    const auto good = [](char c) { return IsLetter(c) || c == '_'; };
    return !text.empty() && !IsDigit(text[0]) && std::ranges::all_of(text, good);
}

// "8", "1.5", "500m", "32Gi", "1e3".
bool IsQuantity(std::string_view text) {
    size_t at = 0;
    bool digits = false, point = false;
    for (; at < text.size() && (IsDigit(text[at]) || (text[at] == '.' && !point)); ++at) {
        digits |= IsDigit(text[at]);
        point |= text[at] == '.';
    }
    const std::string_view unit = text.substr(at);
    if (!digits) return false;
    constexpr std::string_view kUnits[] = {"",  "m",  "k",  "M",  "G",  "T",  "P",
                                           "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    if (std::ranges::find(kUnits, unit) != std::end(kUnits)) return true;
    return unit.size() > 1 && unit.size() < 4 && (unit[0] == 'e' || unit[0] == 'E') &&
           std::ranges::all_of(unit.substr(1), IsDigit);
}

// [HOST/]PATH[:TAG][@DIGEST]; capitals only in host, tag and digest.
bool IsImage(const std::string& image) {
    if (!IsUtf8(image) || image.empty() || !IsLetter(image.back())) return false;
    const size_t slash = image.rfind('/');
    const std::string last = slash == image.npos ? image : image.substr(slash + 1);
    const std::string name = last.substr(0, last.find_first_of(":@"));
    return IsDnsWord(name, 255, "-_.");
}

Status CheckMounts(const JobSpec& job) {
    std::set<std::string> paths = {"/dev/shm", "/etc/weft"};
    for (const Mount& mount : job.mounts) {
        const bool good = IsUtf8(mount.source) && IsUtf8(mount.path) && !mount.source.empty() &&
                          mount.path.starts_with('/') && mount.path.find(':') == mount.path.npos;
        if (!good || mount.path == "/dev/shm" || mount.path == "/etc/weft") {
            return MakeError(
                ErrorCode::kUsage,
                "--mount {}={}: expected CLAIM=/path, secret/NAME=/path or /host/path=/path, "
                "without ':', not /dev/shm or /etc/weft",
                mount.source, mount.path);
        }
        if (!paths.insert(mount.path).second) {
            return MakeError(ErrorCode::kUsage, "--mount: two volumes have the path {}",
                             mount.path);
        }
        const bool folder = mount.source[0] == '/';
        if (folder && mount.source.find("..") != mount.source.npos) {
            return MakeError(ErrorCode::kUsage, "--mount {}={}: Kubernetes takes no path with '..'",
                             mount.source, mount.path);
        }
        const bool secret = mount.source.starts_with(kSecretMount);
        const std::string_view name =
            std::string_view(mount.source).substr(secret ? kSecretMount.size() : 0);
        if (!folder && !IsDnsWord(name, 253, "-.")) {
            return MakeError(ErrorCode::kUsage,
                             "--mount {}={}: a claim's name has only small letters, digits, '-' "
                             "and '.', as has NAME in secret/NAME; a folder of the nodes begins "
                             "with '/'",
                             mount.source, mount.path);
        }
    }
    return {};
}

// (Names only: the value of a variable may be a secret.)
Status TakeOnce(const char* flag, const std::string& name, std::set<std::string>& names) {
    if (names.insert(name).second) return {};
    return MakeError(ErrorCode::kUsage, "{} {} is given twice. Remove one of them", flag, name);
}

Status CheckResources(const JobSpec& job) {
    if (!job.memory.empty() && !IsQuantity(job.memory)) {
        return MakeError(ErrorCode::kUsage, "--memory {}: expected an amount, as 32Gi or 500M",
                         job.memory);
    }
    std::set<std::string> names;
    for (const std::string& resource : job.resources) {
        const size_t equals = std::min(resource.rfind('='), resource.size());
        const std::string name = resource.substr(0, equals);
        const bool good = equals < resource.size() && IsQualifiedName(name) &&
                          IsQuantity(std::string_view(resource).substr(equals + 1));
        if (!good) {
            return MakeError(ErrorCode::kUsage,
                             "--resource {}: expected NAME=AMOUNT, as rdma/hca=1", resource);
        }
        if (name == "cpu" || name == "memory") {
            return MakeError(ErrorCode::kUsage, "--resource {}: use --{} for it", resource,
                             name == "cpu" ? "cpus" : name);
        }
        WEFT_TRY(TakeOnce("--resource", name, names));
    }
    return {};
}

// Variables that the file itself or Kubernetes sets.
bool IsOwnVariable(std::string_view name) {
    constexpr std::string_view kOwn[] = {"WEFT_KEY_FILE", "WEFT_RESTART", "RANK",
                                         "WORLD_SIZE",    "MASTER_ADDR",  "MASTER_PORT"};
    return std::ranges::find(kOwn, name) != std::end(kOwn) || name.starts_with("LWS_");
}

Status CheckEnvironment(const JobSpec& job) {
    std::set<std::string> names;
    for (const std::string& variable : job.environment) {
        const size_t equals = std::min(variable.find('='), variable.size());
        const std::string name = variable.substr(0, equals);
        if (equals == variable.size() || !IsVariable(name) || !IsUtf8(variable)) {
            return MakeError(ErrorCode::kUsage,
                             "--env {}: expected NAME=VALUE in UTF-8, the name in letters, digits "
                             "and '_'",
                             name);
        }
        if (IsOwnVariable(name)) {
            return MakeError(ErrorCode::kUsage, "--env {}: 'weft submit' sets this variable itself",
                             name);
        }
        WEFT_TRY(TakeOnce("--env", name, names));
    }
    return {};
}

Status CheckPlacement(const JobSpec& job) {
    std::set<std::string> keys;
    for (const std::string& label : job.node_labels) {
        const size_t equals = std::min(label.find('='), label.size());
        const std::string key = label.substr(0, equals);
        const bool good = equals < label.size() && IsQualifiedName(key) &&
                          IsLabelValue(std::string_view(label).substr(equals + 1));
        if (!good) {
            return MakeError(ErrorCode::kUsage,
                             "--node-selector {}: expected KEY=VALUE, a label of the nodes, as "
                             "'kubectl get nodes --show-labels' prints it",
                             label);
        }
        WEFT_TRY(TakeOnce("--node-selector", key, keys));
    }
    for (const std::string& toleration : job.tolerations) {
        const size_t colon = std::min(toleration.rfind(':'), toleration.size());
        const std::string_view taint = std::string_view(toleration).substr(0, colon);
        const size_t equals = std::min(taint.find('='), taint.size());
        constexpr std::string_view kEffects[] = {"NoSchedule", "PreferNoSchedule", "NoExecute"};
        const bool effect =
            colon == toleration.size() ||
            std::ranges::find(kEffects, toleration.substr(colon + 1)) != std::end(kEffects);
        const bool value = equals == taint.size() || IsLabelValue(taint.substr(equals + 1));
        if (effect && value && IsQualifiedName(taint.substr(0, equals))) continue;
        return MakeError(ErrorCode::kUsage,
                         "--toleration {}: expected KEY[=VALUE][:EFFECT], a taint as 'kubectl "
                         "describe node' prints it; the effect is NoSchedule, PreferNoSchedule or "
                         "NoExecute",
                         toleration);
    }
    return {};
}

Status CheckSecrets(const JobSpec& job) {
    const auto bad = [](const std::string& name) { return !IsDnsWord(name, 253, "-."); };
    const auto pull = std::ranges::find_if(job.pull_secrets, bad);
    const bool own = !job.secret.empty() && bad(job.secret);
    if (own || pull != job.pull_secrets.end()) {
        return MakeError(ErrorCode::kUsage,
                         "{} {}: the name of a Secret has only small letters, digits, '-' and '.'",
                         own ? "--secret" : "--pull-secret", own ? job.secret : *pull);
    }
    if (job.secret.empty() || job.api_keys.empty()) return {};
    return MakeError(ErrorCode::kUsage,
                     "--api-keys and --secret exclude each other: the keys are the entry 'keys' of "
                     "the Secret {}",
                     job.secret);
}

Status CheckNames(const JobSpec& job) {
    if (!job.target.place.empty() && !IsDnsWord(job.target.place, kMostLabel, "-")) {
        return MakeError(
            ErrorCode::kUsage,
            "--to {}:{}: a namespace has only small letters, digits and '-', at most {}",
            EngineName(job.target.engine), job.target.place, kMostLabel);
    }
    if (!IsImage(job.image)) {
        return MakeError(ErrorCode::kUsage,
                         "--image '{}': expected [HOST/]NAME[:TAG], the name in small letters",
                         job.image);
    }
    // (A label's value, for Kueue.)
    if (!IsLabelValue(job.queue)) {
        return MakeError(ErrorCode::kUsage,
                         "--queue {}: expected letters, digits, '-', '_' and '.', at most {}",
                         job.queue, kMostLabel);
    }
    const bool folder = job.folder.empty() || (job.folder[0] == '/' && IsUtf8(job.folder));
    if (!folder || !IsUtf8(job.program)) {
        return MakeError(ErrorCode::kUsage,
                         "--folder, --program: in a pod, both must be UTF-8, and the folder must "
                         "be an absolute path");
    }
    return {};
}

}  // namespace

std::optional<std::string> ValueOf(const JobSpec& job, std::string_view flag) {
    std::optional<std::string> value;
    for (const std::string& word : job.flags) {
        const size_t equals = std::min(word.find('='), word.size());
        if (std::string_view(word).substr(0, equals) != flag) continue;
        value = word.substr(std::min(equals + 1, word.size()));
    }
    return value;
}

Status CheckPods(const JobSpec& job) {
    for (const std::string& word : job.command) {
        if (IsUtf8(word)) continue;
        return MakeError(ErrorCode::kUsage,
                         "an argument of the command is not UTF-8, which a manifest can't hold. "
                         "Rename the file");
    }
    WEFT_TRY(CheckNames(job));
    WEFT_TRY(CheckMounts(job));
    WEFT_TRY(CheckEnvironment(job));
    WEFT_TRY(CheckPlacement(job));
    WEFT_TRY(CheckSecrets(job));
    return CheckResources(job);
}

Status CheckJobPods(const JobSpec& job) {
    const char* flag = job.replicas != 1            ? "--replicas"
                       : !job.api_keys.empty()      ? "--api-keys"
                       : job.service != "ClusterIP" ? "--service-type"
                                                    : nullptr;
    if (flag == nullptr) return {};
    return MakeError(ErrorCode::kUsage, "{} needs 'serve'; '{}' answers no clients", flag,
                     job.command[0]);
}

Status CheckServingPods(const JobSpec& job) {
    const std::string port = ValueOf(job, "--port").value_or("8080");
    int number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    const bool whole = error == std::errc() && end == port.data() + port.size();
    if (!whole || number < 1 || number > 65'535) {
        return MakeError(ErrorCode::kUsage,
                         "serve --port {}: in a pod, expected a port from 1 to 65535, which the "
                         "pod's probes need",
                         port);
    }
    // A file of flags may set the rest.
    if (ValueOf(job, "--config") || ValueOf(job, "--api-key-file")) return {};
    return MakeError(ErrorCode::kUsage,
                     "a server in a pod accepts connections from other hosts, so it needs API "
                     "keys: 'weft key new NAME >> keys' makes one; add --api-keys keys, or "
                     "--secret NAME, a Secret with the entries key and keys");
}

}  // namespace weft::submit
