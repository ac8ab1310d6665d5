// weft up: serves ranks of the cluster on this host, and finds the cluster's other hosts.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include "base/folder_limit.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/start_thread.h"
#include "cli/cluster/host_facts.h"
#include "cli/commands.h"
#include "cli/serve/supervise.h"
#include "cli/serve/systemd_unit.h"
#include "cluster/cluster.h"
#include "cluster/join/handshake.h"
#include "cluster/socket.h"
#include "fleet/cluster_file.h"
#include "fleet/discovery.h"
#include "fleet/find.h"
#include "fleet/key_phrase.h"
#include "net/addresses.h"

namespace weft::cli {
namespace {

struct UpFlags {
    std::vector<std::string> words;
    std::string cluster = "home", key_file;
    int port = cluster::kWorkerPort;
    bool unit = false;
    cluster::DataPortOptions data;
    std::vector<std::string> folders;
    int jobs = 1;
};

std::string ClusterWords(const UpFlags& flags) {
    return flags.cluster == "home" ? "" : " --cluster " + flags.cluster;
}

bool RequestsWords(const UpFlags& flags) {
    return flags.words == std::vector<std::string>{"-"};
}

// The words of the key as given: as arguments, or with "-" as a line of standard input.
Result<std::vector<std::string>> TypedWords(const UpFlags& flags) {
    if (!RequestsWords(flags)) return flags.words;
    if (::isatty(STDIN_FILENO) == 1) {
        PrintErr("The words that 'weft up' printed on the first host: ");
    }
    std::string line;
    for (int letter = std::getchar(); letter != EOF && letter != '\n' && line.size() < 256;
         letter = std::getchar()) {
        line += static_cast<char>(letter);
    }
    if (!line.empty()) return std::vector<std::string>{line};
    return MakeError(ErrorCode::kUsage, "standard input has no key phrase");
}

std::string KeyText(const fleet::Bytes& key) {
    return {reinterpret_cast<const char*>(key.data()), key.size()};
}

// Creates the cluster's key, or stores the typed one; an existing key stays.
Status BringKey(const UpFlags& flags, const std::string& path) {
    WEFT_ASSIGN(const std::vector<std::string> typed, TypedWords(flags));
    std::string key;
    if (!typed.empty()) {
        WEFT_ASSIGN(key, fleet::ParseKeyPhrase(typed));
        if (!RequestsWords(flags)) {
            Log(LogLevel::kWarning,
                "other users of this host can read a key phrase on a command line, and the shell's "
                "history keeps it. 'weft up -{}' asks for it instead",
                ClusterWords(flags));
        }
    }
    bool made = false;
    if (::access(path.c_str(), F_OK) != 0) {
        if (!flags.key_file.empty()) {
            return MakeError(ErrorCode::kNotFound, "--key-file {}: there is no such file", path);
        }
        WEFT_ASSIGN(made, fleet::MakeKey(path, key.empty() ? fleet::NewKeyPhrase() : key));
        const bool chosen = made && key.empty();
        if (chosen) {
            Log(LogLevel::kInfo, "created the key of cluster '{}': {}", flags.cluster, path);
        }
    }
    if (made || key.empty()) return {};
    WEFT_ASSIGN(const fleet::Bytes here, cluster::ReadKeyFile(path));
    if (KeyText(here) == key) return {};
    return MakeError(ErrorCode::kDenied,
                     "{} is the key of another cluster. Delete the file to leave that cluster, or "
                     "join this cluster as well with --cluster NAME",
                     path);
}

// Prints the words for a user at a terminal, or if the key is new, but never to a journal.
void PrintCommands(const UpFlags& flags, const fleet::Bytes& key, bool made) {
    const std::string words = KeyText(key);
    if (!fleet::IsKeyPhrase(words) || !flags.words.empty()) return;
    if (!made && ::isatty(STDERR_FILENO) != 1) return;
    PrintErr(
        "On each other host of this cluster, run\n\n    weft up -{}\n\nand type these words when "
        "it asks for them:\n\n    {}\n\n",
        ClusterWords(flags), words);
}

// An unnamed file with the current list of heard hosts. Ranks read it when an epoch begins, because
// cables may have changed since the ranks started.
class NeighbourFile {
  public:
    // discovery: outlives this.
    explicit NeighbourFile(const fleet::Discovery& discovery)
        : discovery_(discovery), fd_(MemoryFile("weft-neighbours")) {
        Write();
    }
    // Begins to update the file. The main thread handles signals.
    Status Start() {
        const auto update = [this] {
            while (!ends_.load()) {
                ::usleep(kTurnUs);
                Write();
            }
        };
        return StartThread(thread_, update, {.signals = false});
    }
    ~NeighbourFile() {
        ends_.store(true);
        if (thread_.joinable()) thread_.join();
    }
    std::string path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_.get()); }

  private:
    static constexpr useconds_t kTurnUs = 250'000;
    void Write() {
        const std::string text = net::NeighboursText(fleet::NeighboursOf(discovery_.Now())) + "\n";
        if (text == written_) return;
        const bool whole =
            ::pwrite(fd_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
            ::ftruncate(fd_.get(), static_cast<off_t>(text.size())) == 0;
        written_ = whole ? text : "";
    }

    const fleet::Discovery& discovery_;
    Fd fd_;
    std::string written_;
    std::atomic<bool> ends_{false};
    std::thread thread_;
};

// The discovery, if enabled.
struct Ears {
    std::unique_ptr<fleet::Discovery> discovery;
    std::unique_ptr<NeighbourFile> file;
};

// ears: its members are set (or stay null) before the listener runs.
Result<std::unique_ptr<cluster::WorkerListener>> ListenEverywhere(const UpFlags& flags,
                                                                  const std::string& key_file,
                                                                  const Ears& ears) {
    cluster::WorkerListener::Options options;
    options.key_file = key_file;
    options.worker_arguments = WorkerArguments(flags.data, flags.folders);
    options.jobs = flags.jobs;
    options.more_arguments = [&ears]() -> std::vector<std::string> {
        if (ears.discovery == nullptr) return {};
        std::vector<std::string> words = {"--neighbours-file", ears.file->path()};
        const auto heard = fleet::NeighboursOf(ears.discovery->Now());
        if (!heard.empty()) {
            words.insert(words.end(), {"--neighbours", net::NeighboursText(heard)});
        }
        return words;
    };
    options.neighbors = [&ears] {
        std::vector<cluster::NeighborWorker> neighbors;
        if (ears.discovery == nullptr) return neighbors;
        const fleet::Hearing hearing = ears.discovery->Now();
        for (std::string& name : fleet::HostNames(hearing)) {
            std::vector<std::string> addresses = fleet::AddressesOf(name, hearing);
            neighbors.push_back({std::move(name), std::move(addresses)});
        }
        return neighbors;
    };
    options.listen = fmt::format("[::]:{}", flags.port);
    auto listener = cluster::WorkerListener::Open(options);
    if (!listener.ok() && listener.error().code == ErrorCode::kIo) {  // the host may lack IPv6
        options.listen = fmt::format("0.0.0.0:{}", flags.port);
        listener = cluster::WorkerListener::Open(options);
    }
    if (listener.ok() || listener.error().code != ErrorCode::kIo) return listener;
    return MakeError(ErrorCode::kIo, "{}. Does 'weft up' or 'weft worker' run here already?",
                     listener.error().message);
}

Status PrintUpUnit(const UpFlags& flags, const fleet::ClusterFile& file) {
    if (!flags.words.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--unit: a unit must not contain the key phrase. Run 'weft up -{}' once, "
                         "then 'weft up --unit{}'",
                         ClusterWords(flags), ClusterWords(flags));
    }
    WEFT_TRY(fleet::CheckHasKey(flags.cluster, file));
    WEFT_ASSIGN(const std::vector<std::string> words, OwnCommandLine());
    return PrintUserUnit({.name = "weft-up-" + flags.cluster,
                          .description = "Weft: a host of the cluster " + flags.cluster,
                          .words = words,
                          .stop_seconds = 90,
                          .reloads = false});
}

// Tells a user at a terminal how this host can serve without one.
void LogUnits(const UpFlags& flags) {
    if (::isatty(STDERR_FILENO) != 1) return;
    PrintErr(
        "As services of systemd, here and for a server that waits for its hosts:\n\n"
        "    weft up{0} --unit\n    weft serve MODEL --cluster {1} --restart --unit\n\n",
        ClusterWords(flags), flags.cluster);
}

Status RunUp(UpFlags& flags) {
    WEFT_TRY(cluster::CheckDataPortOptions(flags.data));
    WEFT_ASSIGN(const FolderLimit limit, FolderLimit::Make(flags.folders));
    flags.folders = limit.folders();
    WEFT_ASSIGN(fleet::ClusterFile file, fleet::ReadClusterFile(flags.cluster));
    if (!flags.key_file.empty()) {
        if (!flags.words.empty()) {
            return MakeError(ErrorCode::kUsage,
                             "the key phrase is the key, so it excludes --key-file");
        }
        file.key = flags.key_file;
    }
    if (flags.unit) return PrintUpUnit(flags, file);
    const bool made = ::access(file.key.c_str(), F_OK) != 0;
    WEFT_TRY(BringKey(flags, file.key));
    WEFT_ASSIGN(const fleet::Bytes key, cluster::ReadKeyFile(file.key));
    Ears ears;
    WEFT_ASSIGN(const auto listener, ListenEverywhere(flags, file.key, ears));
    const fleet::SelfFacts self = OwnFacts(static_cast<uint16_t>(listener->port()));
    PrintCommands(flags, key, made);
    LogUnits(flags);
    Log(LogLevel::kInfo, "{} ({}, {}) serves cluster '{}' at port {}; Ctrl-C ends", self.name,
        BytesText(self.memory_bytes), self.device, flags.cluster, self.port);
    auto started = fleet::Discovery::Start(key, self, true);
    if (started.ok()) {
        ears.discovery = *std::move(started);
        ears.file = std::make_unique<NeighbourFile>(*ears.discovery);
        WEFT_TRY(ears.file->Start());
    } else {
        Log(LogLevel::kWarning, "other hosts cannot find this host: {}", started.error().message);
    }
    return listener->Run();
}

}  // namespace

void AddUp(const Command& app, int& status) {
    auto flags = std::make_shared<UpFlags>();
    const Command up =
        app.AddCommand("up", "Join this host to a cluster: serve ranks, and find the other hosts");
    const Command shown = up.ShowDefaults();
    up.AddOption("WORDS", flags->words,
                 "'-': read the key phrase that 'weft up' printed on the first host, from a prompt "
                 "or standard input; none: use this host's key, or create one. The phrase itself "
                 "works, too, but other users can read a command line");
    shown.AddOption("--cluster NAME", flags->cluster,
                    "Name of the cluster; its key is ~/.config/weft/clusters/NAME.key");
    up.AddOption("--key-file", flags->key_file,
                 "Path of the cluster key, if it is not in the configuration folder");
    shown.AddNumber("--port", flags->port, 1, 65'535, "TCP port on which to accept jobs");
    up.AddFlag("--unit", flags->unit,
               "Print a systemd --user unit for this command, and start nothing");
    AddJobsOption(up, flags->jobs);
    AddFoldersOption(up, flags->folders);
    AddDataPortOptions(up, flags->data);
    up.Footer(
        "The hosts find each other on every cable between them, by IPv6 link-local multicast,\n"
        "without configured addresses. Open UDP and TCP port 7000 in a firewall.\n\n"
        "Examples:\n"
        "  weft up                  (on the first host: prints the key phrase)\n"
        "  weft up -                (on each other host: asks for the key phrase)\n"
        "  weft up - < words.txt\n"
        "  weft hosts\n"
        "  weft run model.gguf -p \"Hello\" --cluster home");
    up.Callback([flags, &status] {
        const Status done = RunUp(*flags);
        status = done.ok() ? 0 : Fail(done.error());
    });
}

}  // namespace weft::cli
