#include "submit/client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/child_process.h"
#include "base/file.h"
#include "base/home_folder.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/shell_word.h"
#include "base/text.h"
#include "submit/quote.h"
#include "submit/ssh_rank.h"

namespace weft::submit {
namespace {

constexpr size_t kMostSaid = 1 << 20;  // bytes of a client's answer
constexpr int kInterrupted = 128 + SIGINT;

const char* HowToGet(const std::string& client) {
    if (client == "sbatch") return "It comes with Slurm (Debian: slurm-client)";
    if (client == "kubectl") return "See https://kubernetes.io/docs/tasks/tools";
    if (client == "ray") return "'pip install ray[default]' brings it";
    return "Is it installed, and on PATH?";
}

// Ignores SIGINT in this process while the object exists: Ctrl-C is for the client, which may have
// to cancel its work.
class IgnoredInterrupts {
  public:
    IgnoredInterrupts() {
        struct sigaction ignore {};
        ignore.sa_handler = SIG_IGN;
        ::sigaction(SIGINT, &ignore, &before_);
    }
    ~IgnoredInterrupts() { ::sigaction(SIGINT, &before_, nullptr); }
    IgnoredInterrupts(const IgnoredInterrupts&) = delete;
    IgnoredInterrupts& operator=(const IgnoredInterrupts&) = delete;

  private:
    struct sigaction before_ {};
};

// Runs a client on this process's terminal. It has no deadline: the user can interrupt it.
Result<ChildResult> Run(const std::vector<std::string>& words, bool capture_output) {
    ChildOptions options;
    options.max_output_bytes = kMostSaid;
    options.interactive = true;
    options.capture_output = capture_output;
    auto ran = RunChild(words, std::nullopt, options);
    if (ran.ok() || ran.error().code != ErrorCode::kNotFound) return ran;
    return MakeError(ErrorCode::kNotFound, "'{}' is not installed, and this job needs it. {}",
                     words[0], HowToGet(words[0]));
}

std::string NotePath(const std::string& name) {
    return NotesFolder() + "/" + name + ".json";
}

nlohmann::json ToJson(const Submitted& job) {
    return {{"name", job.name},          {"to", EngineName(job.target.engine)},
            {"place", job.target.place}, {"id", job.id},
            {"hosts", job.hosts},        {"folder", job.folder},
            {"command", job.command},    {"at", job.at_s},
            {"serves", job.serves}};
}

Result<Submitted> FromJson(const std::string& text) {
    const nlohmann::json json = JsonOrDiscarded(text);
    const auto has = [&](const char* key, nlohmann::json::value_t type) {
        return json.is_object() && json.contains(key) && json[key].type() == type;
    };
    using Type = nlohmann::json::value_t;
    Submitted job;
    bool good = has("serves", Type::boolean) && has("at", Type::number_unsigned);
    for (const auto& [key, value] : {std::pair<const char*, std::string*>{"name", &job.name},
                                     {"place", &job.target.place},
                                     {"id", &job.id},
                                     {"folder", &job.folder}}) {
        good = good && has(key, Type::string);
        if (good) *value = json[key];
    }
    for (const auto& [key, list] :
         {std::pair<const char*, std::vector<std::string>*>{"hosts", &job.hosts},
          {"command", &job.command}}) {
        good = good && has(key, Type::array);
        if (!good) break;
        for (const nlohmann::json& word : json[key]) {
            if (word.is_string()) list->push_back(word);
        }
    }
    good = good && has("to", Type::string);
    const auto target =
        good ? ParseTarget(json["to"]) : MakeError(ErrorCode::kCorrupt, "no target");
    if (!target.ok()) return MakeError(ErrorCode::kCorrupt, "not a note of a job");
    job.target.engine = target->engine;
    job.at_s = json["at"];
    job.serves = json["serves"];
    return job;
}

// Ray prints "Job 'raysubmit_x' submitted successfully"; the id is the given name.
std::string IdOf(const JobSpec& job, const std::string& said) {
    if (job.target.engine != Engine::kSlurm) return {};
    return said.substr(0, said.find_first_not_of("0123456789"));  // "4711;cluster"
}

// The client's command for a file at `path`.
std::vector<std::string> ClientWords(const JobSpec& job, const NativeFile& file,
                                     const std::string& path) {
    std::vector<std::string> words = file.client;
    if (job.target.engine == Engine::kRay) {
        const std::filesystem::path at(path);
        words.insert(words.end(),
                     {"--submission-id=" + job.name, "--working-dir=" + at.parent_path().string(),
                      "--", "python3", at.filename().string()});
    } else {
        words.push_back(path);
    }
    return words;
}

// A folder that only this user can read, with the file in it; deleted with the object.
class PrivateFile {
  public:
    ~PrivateFile() {
        std::error_code ignored;
        if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
    }
    PrivateFile() = default;
    PrivateFile(const PrivateFile&) = delete;
    PrivateFile& operator=(const PrivateFile&) = delete;
    Status Write(const NativeFile& file) {
        const char* place = std::getenv("TMPDIR");
        folder_ = std::string(place == nullptr ? "/tmp" : place) + "/weft-submit-XXXXXX";
        if (::mkdtemp(folder_.data()) == nullptr) {
            folder_.clear();
            return MakeError(ErrorCode::kIo, "cannot make a folder in {}: {}",
                             place == nullptr ? "/tmp" : place, std::strerror(errno));
        }
        path_ = folder_ + "/" + file.name;
        return WriteFile(path_, std::as_bytes(std::span(file.text)));
    }
    const std::string& path() const { return path_; }

  private:
    std::string folder_, path_;
};

std::string PlaceFlag(const Submitted& job, const char* flag) {
    return job.target.place.empty() ? std::string() : flag + job.target.place;
}

std::vector<std::string> WithPlace(const Submitted& job, const char* flag,
                                   std::vector<std::string> words) {
    const std::string place = PlaceFlag(job, flag);
    if (!place.empty()) words.push_back(place);
    return words;
}

// On the host of a rank of an ssh job: `script`, with the rank's folder in $job and its process, if
// it runs, in $pid.
std::vector<std::string> OnHost(const Submitted& job, size_t rank, const std::string& script) {
    const std::string here =
        fmt::format("job=${{XDG_STATE_HOME:-$HOME/.local/state}}/weft/jobs/{}/{}; {}; {}", job.name,
                    rank, kFindRank, script);
    const std::string host = rank < job.hosts.size() ? job.hosts[rank] : "";
    return {
        "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, "sh -c " + ShellWord(here)};
}

// One command that does the same for all ranks, in sequence. It fails if it failed on a host.
std::vector<std::string> OnHosts(const Submitted& job, const std::string& script) {
    std::string all = "failed=0; ";
    for (size_t rank = 0; rank < job.hosts.size(); ++rank) {
        all += fmt::format("printf '%s: ' {}; {} || failed=$?; ", ShellWord(job.hosts[rank]),
                           ShellWords(OnHost(job, rank, script)));
    }
    return {"sh", "-c", all + "exit $failed"};
}

// Submits, and returns the client's output. A manifest has several objects, and a cluster that
// refuses one keeps those before it: the cluster checks all of them first.
Result<std::string> ValidateByEngine(const JobSpec& job, const NativeFile& file,
                                     const std::string& path) {
    if (file.client.front() == "kubectl") {
        WEFT_TRY(RunEngineClient({"kubectl", "create", "--dry-run=server", "-f", path}));
    }
    return RunEngineClient(ClientWords(job, file, path));
}

const char* KindOf(const Submitted& job) {
    if (job.target.engine == Engine::kKubeRay) return "rayjob";
    return job.serves ? "leaderworkerset" : "jobset";
}

// Commands that print a state alone.
std::vector<std::string> StateCommand(const Submitted& job) {
    const auto field = [&](const char* path) {
        return WithPlace(
            job, "--namespace=",
            {"kubectl", "get", KindOf(job), job.name, std::string("--output=jsonpath=") + path});
    };
    switch (job.target.engine) {
        case Engine::kKubeRay: return field("{.status.jobDeploymentStatus}");
        case Engine::kKubernetes:
            if (job.serves) return field("{.status.readyReplicas} of {.spec.replicas} ready");
            return field("{.status.terminalState}{.status.replicatedJobsStatus[0].ready}");
        case Engine::kSlurm:
        case Engine::kRay:
        case Engine::kSsh: break;
    }
    return StatusCommand(job);
}

// Ray prints sentences: "Status for job 'tune': RUNNING", "Job 'tune' succeeded".
std::string RayState(const std::string& said, const std::string& name) {
    const size_t at = said.rfind(LowerCase("'" + name + "'"));
    std::string state;
    size_t first = said.npos;
    for (const char* word : {"pending", "running", "stopped", "succeeded", "failed"}) {
        const size_t found = at == said.npos ? at : said.find(word, at + name.size());
        if (found >= first) continue;
        first = found;
        state = word;
    }
    return state;
}

std::string PodsState(const Submitted& job, const std::string& text) {
    const bool nothing = text.empty() || text == "0";
    if (job.target.engine == Engine::kKubeRay) return nothing ? "pending" : text;
    if (job.serves) return text.starts_with("of ") ? "0 " + text : text;  // none is ready
    if (text == "1") return "running";  // the JobSet's one job is ready
    return nothing ? "pending" : text.substr(0, text.find_first_of("01"));
}

// The different states of hosts ("a: running"), or of the parts of a job of Slurm.
std::string StatesOfParts(const std::string& said, bool all_answered) {
    std::vector<std::string> states;
    for (std::string_view line : Lines(said)) {
        if (const size_t colon = line.rfind(": "); colon != line.npos)
            line.remove_prefix(colon + 2);
        if (line.empty() || std::ranges::count(states, line) > 0) continue;
        states.emplace_back(line);
    }
    if (!all_answered) states.emplace_back("unknown");
    return fmt::format("{}", fmt::join(states, ", "));
}

}  // namespace

std::string NotesFolder() {
    const char* state = std::getenv("XDG_STATE_HOME");
    if (state != nullptr && *state == '/') return std::string(state) + "/weft/submitted";
    return HomeFolder() + "/.local/state/weft/submitted";
}

std::vector<Submitted> ReadNotes() {
    std::vector<Submitted> jobs;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(NotesFolder(), none)) {
        if (entry.path().extension() != ".json") continue;
        auto job = ReadNote(entry.path().stem());
        if (job.ok()) jobs.push_back(std::move(*job));
    }
    std::ranges::sort(jobs, {}, [](const Submitted& job) { return std::pair(job.at_s, job.name); });
    return jobs;
}

Result<Submitted> ReadNote(const std::string& name) {
    if (name.find('/') != name.npos || name.starts_with('.')) {
        return MakeError(ErrorCode::kNotFound, "no job '{}' was submitted from here", name);
    }
    const auto text = ReadTextFile(NotePath(name), 1 << 20);
    if (!text.ok()) {
        return MakeError(ErrorCode::kNotFound,
                         "no job '{}' was submitted from here by 'weft submit'. 'weft job list' "
                         "lists the submitted jobs",
                         name);
    }
    return FromJson(*text);
}

Status WriteNote(const Submitted& job) {
    std::error_code failed;
    std::filesystem::create_directories(NotesFolder(), failed);
    if (failed) {
        return MakeError(ErrorCode::kIo, "cannot make {}: {}", NotesFolder(), failed.message());
    }
    const std::string text =
        ToJson(job).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    return WriteFile(NotePath(job.name), std::as_bytes(std::span(text)));
}

void ForgetNote(const std::string& name) {
    std::error_code ignored;
    std::filesystem::remove(NotePath(name), ignored);
}

Result<int> RunClient(const std::vector<std::string>& words) {
    WEFT_ASSIGN(const ChildResult ran, Run(words, false));
    return ran.status;
}

Result<std::string> RunEngineClient(const std::vector<std::string>& words) {
    const IgnoredInterrupts ignored;
    WEFT_ASSIGN(ChildResult ran, Run(words, true));
    if (ran.status == kInterrupted) {
        return MakeError(ErrorCode::kCancelled, "stopped by the user: no job was submitted");
    }
    if (ran.status != 0) {
        return MakeError(ErrorCode::kIo, "'{}' ended with status {}; its messages are above",
                         fmt::join(words, " "), ran.status);
    }
    return std::move(ran.out);
}

Result<Submitted> Submit(const JobSpec& job, const NativeFile& file) {
    if (ReadNote(job.name).ok()) {
        return MakeError(
            ErrorCode::kUsage,
            "a job '{0}' was submitted before. Take another --name, or forget it: weft "
            "job cancel {0} --forget",
            job.name);
    }
    PrivateFile native;
    WEFT_TRY(native.Write(file));
    Submitted submitted{job.name,
                        job.target,
                        "",
                        job.hosts,
                        std::filesystem::current_path().string(),
                        job.command,
                        static_cast<int64_t>(std::time(nullptr)),
                        IsCommand(job, "serve")};
    // The note is written first: without it, `weft job` could not find a running job.
    WEFT_TRY(WriteNote(submitted));
    const auto said = ValidateByEngine(job, file, native.path());
    if (!said.ok()) {
        ForgetNote(job.name);
        return said.error();
    }
    submitted.id = IdOf(job, *said);
    if (job.target.engine != Engine::kSlurm) return submitted;
    if (submitted.id.empty()) {
        ForgetNote(job.name);
        return MakeError(ErrorCode::kCorrupt,
                         "sbatch printed '{}'; expected the job's number, as 'sbatch --parsable' "
                         "prints it. 'squeue --me' shows whether the job {} is there",
                         Printable(said->substr(0, 200)), job.name);
    }
    const Status noted = WriteNote(submitted);
    if (noted.ok()) return submitted;
    return MakeError(ErrorCode::kIo, "{} is submitted as {}, but its note has no number: {}",
                     job.name, submitted.id, noted.error().message);
}

std::vector<std::string> StatusCommand(const Submitted& job) {
    switch (job.target.engine) {
        case Engine::kSlurm:
            return {"sh", "-c",
                    fmt::format("squeue --noheader --jobs={0} --format=%T 2>/dev/null | grep . || "
                                "scontrol show job {0} | "
                                "sed -n 's/.*JobState=\\([A-Z_]*\\).*/\\1/p' | grep .",
                                job.id)};
        case Engine::kRay: return WithPlace(job, "--address=", {"ray", "job", "status", job.name});
        case Engine::kKubeRay:
        case Engine::kKubernetes:
            return WithPlace(job, "--namespace=", {"kubectl", "get", KindOf(job), job.name});
        case Engine::kSsh:
            return OnHosts(job,
                           "if [ -f \"$job/status\" ]; then "
                           "echo ended with status $(cat \"$job/status\"); "
                           "elif [ -n \"$pid\" ]; then echo running; else echo lost; fi");
    }
    return {};
}

std::string StateOf(const Submitted& job, const Deadline& deadline) {
    if (deadline.expired()) return "unknown";
    const auto ran = RunChild(StateCommand(job), deadline);
    const bool good = ran.ok() && ran->status == 0;
    const std::string said = ran.ok() ? LowerCase(ran->out) : "";
    std::string state;
    switch (job.target.engine) {
        case Engine::kRay:
            if (good) state = RayState(said + LowerCase(ran->err), job.name);
            break;
        case Engine::kKubeRay:
        case Engine::kKubernetes:
            if (good) state = PodsState(job, std::string(Trim(std::string_view(said))));
            break;
        case Engine::kSlurm:
        case Engine::kSsh: state = StatesOfParts(said, good); break;
    }
    return state.empty() ? "unknown" : Printable(state);
}

std::vector<std::string> LogCommand(const Submitted& job, bool follow) {
    std::vector<std::string> words;
    switch (job.target.engine) {
        case Engine::kSlurm:
            words = follow ? std::vector<std::string>{"tail", "-n", "+1", "-F"}
                           : std::vector<std::string>{"cat"};
            words.push_back(fmt::format("{}/{}-{}.log", job.folder, job.name, job.id));
            return words;
        case Engine::kRay:
            words = {"ray", "job", "logs", job.name};
            if (follow) words.emplace_back("--follow");
            return WithPlace(job, "--address=", words);
        case Engine::kKubeRay: words = {"kubectl", "logs", "job/" + job.name}; break;
        case Engine::kKubernetes:
            words = {"kubectl", "logs",
                     job.serves ? "pod/" + job.name + "-0" : "job/" + job.name + "-rank-0"};
            break;
        case Engine::kSsh:
            return OnHost(job, 0,
                          follow ? "exec tail -n +1 ${pid:+-f --pid=$pid} \"$job/log\""
                                 : "exec cat \"$job/log\"");
    }
    if (follow) words.emplace_back("--follow");
    return WithPlace(job, "--namespace=", words);
}

std::vector<std::string> CancelCommand(const Submitted& job) {
    switch (job.target.engine) {
        case Engine::kSlurm: return {"scancel", job.id};
        case Engine::kRay: return WithPlace(job, "--address=", {"ray", "job", "stop", job.name});
        case Engine::kKubeRay:
            return WithPlace(job,
                             "--namespace=", {"kubectl", "delete", "rayjob,configmap", job.name});
        case Engine::kKubernetes:  // the job's own objects; not a Secret of --secret
            return WithPlace(job, "--namespace=",
                             {"kubectl", "delete",
                              job.serves ? "leaderworkerset,service,secret" : "jobset,secret",
                              "--selector=weft.job=" + job.name});
        case Engine::kSsh:  // the rank, not its shell, which records how it ended
            return OnHosts(job,
                           "[ -n \"$pid\" ] && pkill -TERM -P $pid && "
                           "{ pkill -CONT -P $pid; echo stopped; } || echo ended");
    }
    return {};
}

}  // namespace weft::submit
