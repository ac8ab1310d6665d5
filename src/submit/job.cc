#include "submit/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest_word.h"

namespace weft::submit {
namespace {

constexpr size_t kMostName = 40;
constexpr int kMostNodes = 4096;  // a job has at most as many ranks (cluster/frame.h)

struct EngineRow {
    Engine engine;
    const char* name;
    const char* place;  // meaning of the text after the colon; "": not allowed
};

constexpr EngineRow kEngines[] = {
    {Engine::kSlurm, "slurm", ""},
    {Engine::kRay, "ray", "URL"},
    {Engine::kKubeRay, "kuberay", "NAMESPACE"},
    {Engine::kKubernetes, "k8s", "NAMESPACE"},
    {Engine::kSsh, "ssh", "CLUSTER"},
};

bool IsNameCharacter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

bool HasControl(std::string_view text) {
    return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// A value that is on its own line in an engine's file.
Status CheckWord(const char* flag, const std::string& value) {
    const auto odd = [](unsigned char c) {
        return !(std::isalnum(c) != 0 ||
                 std::string_view("._-:/,@+=%[]&|*~").find(c) != std::string_view::npos);
    };
    if (std::ranges::none_of(value, odd)) return {};
    return MakeError(ErrorCode::kUsage,
                     "{}: expected letters, digits and ._-:/,@+=%[]&|*~ alone, without blanks",
                     flag);
}

// Rejects flags that an engine does not support, rather than ignoring them.
Status CheckFlagsOfEngine(const JobSpec& job) {
    using enum Engine;
    struct Row {
        const char* flag;
        bool given;
        std::vector<Engine> engines;
    };
    const Row rows[] = {
        {"--cpus", job.cpus != 0, {kSlurm, kKubernetes, kKubeRay, kRay}},
        {"--memory", !job.memory.empty(), {kSlurm, kKubernetes, kKubeRay}},
        {"--time", !job.time.empty(), {kSlurm}},
        {"--partition", !job.partition.empty(), {kSlurm}},
        {"--account", !job.account.empty(), {kSlurm}},
        {"--slurm", !job.native.empty(), {kSlurm}},
        {"--mount", !job.mounts.empty(), {kKubernetes, kKubeRay}},
        {"--resource", !job.resources.empty(), {kKubernetes, kKubeRay}},
        {"--group", !job.groups.empty(), {kKubernetes, kKubeRay}},
        {"--network", !job.networks.empty(), {kKubernetes, kKubeRay}},
        {"--env", !job.environment.empty(), {kKubernetes, kKubeRay}},
        {"--node-selector", !job.node_labels.empty(), {kKubernetes, kKubeRay}},
        {"--toleration", !job.tolerations.empty(), {kKubernetes, kKubeRay}},
        {"--pull-secret", !job.pull_secrets.empty(), {kKubernetes, kKubeRay}},
        {"--queue", !job.queue.empty(), {kKubernetes, kKubeRay}},
        {"--scheduler", !job.scheduler.empty(), {kKubernetes, kKubeRay}},
        {"--secret", !job.secret.empty(), {kKubernetes}},
        {"--replicas", job.replicas != 1, {kKubernetes}},
        {"--service-type", job.service != "ClusterIP", {kKubernetes}},
        {"--port", job.port != JobSpec().port, {kKubernetes, kSsh}},
        {"--api-keys", !job.api_keys.empty(), {kKubernetes}},
    };
    for (const Row& row : rows) {
        const bool known = std::ranges::find(row.engines, job.target.engine) != row.engines.end();
        if (!row.given || known) continue;
        std::string names;
        for (const Engine engine : row.engines) {
            names += fmt::format("{}{}", names.empty() ? "" : ", ", EngineName(engine));
        }
        return MakeError(ErrorCode::kUsage, "{} needs --to {}; {} does not support it", row.flag,
                         names, EngineName(job.target.engine));
    }
    return {};
}

}  // namespace

const char* EngineName(Engine engine) {
    for (const EngineRow& row : kEngines) {
        if (row.engine == engine) return row.name;
    }
    return "?";
}

Result<Target> ParseTarget(const std::string& text) {
    const size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    std::vector<std::string> names;
    for (const EngineRow& row : kEngines) {
        names.emplace_back(row.name);
        if (name != row.name) continue;
        Target target{row.engine, colon == text.npos ? "" : text.substr(colon + 1)};
        if (colon == text.npos) return target;
        if (*row.place == '\0' || target.place.empty()) {
            return MakeError(ErrorCode::kUsage, "--to {}: expected {}{}{}", text, row.name,
                             *row.place == '\0' ? "" : ":", row.place);
        }
        WEFT_TRY(CheckWord("--to", target.place));
        return target;
    }
    return MakeError(ErrorCode::kUsage,
                     "--to {}: expected slurm, ray[:URL], kuberay[:NAMESPACE], k8s[:NAMESPACE] or "
                     "ssh[:CLUSTER].{}",
                     text, DidYouMean(name, names));
}

Status CheckJob(const JobSpec& job) {
    if (job.command.empty() || job.command[0].empty() || job.command[0][0] == '-') {
        return MakeError(
            ErrorCode::kUsage,
            "the command of the ranks is missing: weft submit --to {} -N {} -- train MODEL ...",
            EngineName(job.target.engine), job.nodes);
    }
    const bool named = !job.name.empty() && job.name.size() <= kMostName &&
                       std::ranges::all_of(job.name, IsNameCharacter) && job.name.back() != '-' &&
                       job.name.front() >= 'a' && job.name.front() <= 'z';
    if (!named) {
        return MakeError(
            ErrorCode::kUsage,
            "--name '{}': expected a small letter, then small letters, digits and '-', "
            "at most {}",
            job.name, kMostName);
    }
    if (job.nodes < 1 || job.nodes > kMostNodes) {
        return MakeError(ErrorCode::kUsage, "-N {}: a job has one rank per node, and 1 to {} ranks",
                         job.nodes, kMostNodes);
    }
    for (const std::string& word : job.command) {
        if (word.find('\0') != word.npos) {
            return MakeError(ErrorCode::kUsage, "an argument of the command contains a zero byte");
        }
    }
    if (HasControl(job.folder) || HasControl(job.program)) {
        return MakeError(ErrorCode::kUsage, "--folder, --program: control characters in a path");
    }
    for (const auto& [flag, value] :
         {std::pair<const char*, const std::string&>{"--memory", job.memory},
          {"--time", job.time},
          {"--partition", job.partition},
          {"--account", job.account},
          {"--image", job.image},
          {"--network", job.networks},
          {"--queue", job.queue},
          {"--scheduler", job.scheduler}}) {
        WEFT_TRY(CheckWord(flag, value));
    }
    for (const std::string& option : job.native) {
        WEFT_TRY(CheckWord("--slurm", option));
        if (!option.starts_with("--")) {
            return MakeError(ErrorCode::kUsage, "--slurm {}: expected --OPTION=VALUE", option);
        }
    }
    return {};
}

bool IsCommand(const JobSpec& job, std::string_view name) {
    return !job.command.empty() && job.command[0] == name;
}

Result<NativeFile> WriteJob(const JobSpec& job) {
    WEFT_TRY(CheckJob(job));
    WEFT_TRY(CheckFlagsOfEngine(job));
    switch (job.target.engine) {
        case Engine::kSlurm: return WriteSlurm(job);
        case Engine::kRay: return WriteRay(job);
        case Engine::kKubeRay: return WriteKubeRay(job);
        case Engine::kKubernetes: return WriteKubernetes(job);
        case Engine::kSsh: return WriteSsh(job);
    }
    return MakeError(ErrorCode::kUsage, "no such engine");
}

}  // namespace weft::submit
