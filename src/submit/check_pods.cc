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
                "--mount {}={}: expected CLAIM=/path or /host/path=/path, without ':', not "
                "/dev/shm or /etc/weft",
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
        if (!folder && !IsDnsWord(mount.source, 253, "-.")) {
            return MakeError(ErrorCode::kUsage,
                             "--mount {}={}: a claim's name has only small letters, digits, '-' "
                             "and '.'; a folder of the nodes begins with '/'",
                             mount.source, mount.path);
        }
    }
    return {};
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
        if (!names.insert(name).second) {
            return MakeError(ErrorCode::kUsage, "--resource {}: {} is given twice", resource, name);
        }
    }
    return {};
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
    if (!job.queue.empty() &&
        (!IsQualifiedName(job.queue) || job.queue.find('/') != job.queue.npos)) {
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

std::optional<std::string> ValueOf(const std::vector<std::string>& command, std::string_view flag) {
    std::optional<std::string> value;
    for (size_t i = 0; i < command.size(); ++i) {
        const std::string& word = command[i];
        if (word == flag) value = i + 1 < command.size() ? command[i + 1] : "";
        if (word.starts_with(flag) && word.size() > flag.size() && word[flag.size()] == '=') {
            value = word.substr(flag.size() + 1);
        }
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
    return CheckResources(job);
}

Status CheckServingPods(const JobSpec& job) {
    const std::string port = ValueOf(job.command, "--port").value_or("8080");
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
    if (ValueOf(job.command, "--config")) return {};
    const bool heard = ValueOf(job.command, "--host") && ValueOf(job.command, "--api-key-file");
    if (heard) return {};
    return MakeError(ErrorCode::kUsage,
                     "a server in a pod must accept connections from other hosts and from the "
                     "probes: add --host 0.0.0.0 --api-key-file FILE, a file that pods see ('weft "
                     "key new NAME >> FILE' makes a key)");
}

}  // namespace weft::submit
