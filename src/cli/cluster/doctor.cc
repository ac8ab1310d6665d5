// weft doctor: checks hosts, locally, over ssh and from snapshots.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <set>

#include "base/file.h"
#include "base/shell_word.h"
#include "cli/command_line/output_path.h"
#include "cli/commands.h"
#include "cluster/socket.h"
#include "doctor/check.h"
#include "doctor/collect.h"
#include "doctor/cost_model.h"
#include "doctor/fabric.h"
#include "doctor/live_view.h"
#include "doctor/model.h"
#include "doctor/reach.h"
#include "doctor/report.h"
#include "doctor/save.h"
#include "doctor/snapshot.h"
#include "doctor/text.h"
#include "fleet/cluster_file.h"
#include "fleet/find.h"
#include "net/addresses.h"
#include "net/fabric.h"

namespace weft::cli {
namespace {

struct DoctorFlags {
    std::vector<std::string> from, hosts, checks, ignored;
    std::string save, cluster, reach, model, model_content;
    std::string cluster_fault;  // why the cluster's workers were not found
    // Hosts of the cluster on no cable of this host, each with the host through which it is
    // reached.
    std::vector<fleet::FoundHost> beyond;
    doctor::CollectOptions collect;
    cluster::ClusterOptions fabric;  // hosts of the fabric: --workers
    bool list = false, markdown = false, json = false, verbose = false, no_measure = false;
    bool real_names = false;
};

using Views = std::vector<std::unique_ptr<doctor::HostView>>;

// Opens the hosts to check; unreachable hosts become findings. peers: set to 1 if the last view is
// this machine, which only takes part in the test of ports.
Result<Views> Open(const DoctorFlags& flags, std::vector<doctor::Finding>& findings,
                   size_t& peers) {
    Views views;
    std::vector<std::string> origins;
    for (const std::string& path : flags.from) {
        WEFT_ASSIGN(auto view, doctor::OpenSnapshot(path));
        views.push_back(std::move(view));
        origins.push_back(path);
    }
    if (!flags.cluster.empty()) {
        views.push_back(doctor::MakeLiveView({.measure = !flags.no_measure}));
        origins.emplace_back("here");
    }
    if (!flags.hosts.empty()) {
        // Rank 0 of a job over these hosts runs here.
        auto here = doctor::MakeLiveView({.measure = false});
        WEFT_ASSIGN(auto collected,
                    doctor::CollectHosts(flags.hosts, flags.collect,
                                         flags.cluster.empty() ? here.get() : views[0].get()));
        peers = flags.cluster.empty() && collected.tested_here ? 1 : 0;
        for (auto& view : collected.hosts) views.push_back(std::move(view));
        for (auto& name : collected.names) origins.push_back(std::move(name));
        if (peers > 0) {
            views.push_back(std::move(here));
            origins.emplace_back("here");
        }
        findings = std::move(collected.unreachable);
    }
    if (flags.from.empty() && flags.hosts.empty() && flags.cluster.empty()) {
        views.push_back(doctor::MakeLiveView({.measure = !flags.no_measure}));
    }
    std::set<std::string> taken;  // names of unreachable hosts
    for (const doctor::Finding& finding : findings) taken.insert(finding.host);
    doctor::MakeNamesDistinct(views, origins, std::move(taken));
    return views;
}

// The contents of a snapshot, and the names that are pseudonyms.
std::string ContentsText(const std::vector<doctor::SavedSource>& sources,
                         const doctor::Pseudonyms& names) {
    std::string text = "The snapshot holds, of these sources:\n";
    for (const doctor::SavedSource& source : sources) {
        text += fmt::format("  {:<58} {:>4}  {}\n", source.path, source.files, source.kept);
    }
    if (names.given().empty()) return text;
    text += "Pseudonyms (the snapshot does not hold this list):\n";
    for (const auto& [name, stands] : names.given()) {
        text += fmt::format("  {:<20} {}\n", stands, doctor::Printable(name));
    }
    return text;
}

Status Save(const DoctorFlags& flags) {
    if (!flags.from.empty() || !flags.hosts.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--save excludes --from and --hosts: it saves this machine");
    }
    if (flags.json) {
        return MakeError(ErrorCode::kUsage,
                         "--save excludes --json: a snapshot has no findings. 'weft doctor --from "
                         "FILE --json' prints those of a snapshot");
    }
    if (flags.save != "-") {
        WEFT_TRY(CheckOutput(
            {.name = "--save", .path = flags.save, .is_own = doctor::IsSavedSnapshot}, {}));
    }
    doctor::LiveOptions options{.measure = !flags.no_measure};
    // The requesting host waits for timeout_ms: a partial result by then is better than none.
    if (flags.save == "-") {
        options.total_ms = std::min(options.total_ms, flags.collect.timeout_ms / 2);
    }
    Views views;
    views.push_back(doctor::MakeLiveView(options));
    WEFT_TRY(doctor::RunChecks(views, flags.checks));
    doctor::Pseudonyms names(flags.real_names);
    std::vector<doctor::SavedSource> sources;
    const doctor::SnapshotFiles files = doctor::SavedFiles(views[0]->Recorded(), names, &sources);
    WEFT_ASSIGN(const std::string tar, doctor::WriteTar(files));
    if (flags.save == "-") {
        // The contents are printed first, so that the user can stop before the snapshot is sent.
        if (!flags.real_names) WriteErr(ContentsText(sources, names));
        Stream(tar);
        return {};
    }
    WEFT_TRY(WriteFile(flags.save, std::as_bytes(std::span(tar))));
    PrintOut("{}: {} files, {}. To look at it: weft doctor --from {}\n", flags.save, files.size(),
             BytesText(tar.size()), ShellWord(flags.save));
    WriteOut(ContentsText(sources, names));
    return {};
}

void PrintList(const DoctorFlags& flags) {
    if (flags.markdown) {
        PrintOut("{}", doctor::ChecksPage());
    } else if (flags.json) {
        Json list = Json::array();
        for (const doctor::Check& check : doctor::AllChecks()) {
            list.push_back({{"check", check.name},
                            {"what", check.what},
                            {"reads", check.reads},
                            {"why", check.why},
                            {"across_hosts", check.across != nullptr}});
        }
        PrintJson({{"checks", list}});
    } else {
        for (const doctor::Check& check : doctor::AllChecks()) {
            PrintOut("{}\n    {}\n    reads  {}\n    why    {}\n", check.name, check.what,
                     check.reads, check.why);
        }
    }
}

// The requested checks of a single host.
size_t ChecksOfAHost(const DoctorFlags& flags) {
    const auto checks = doctor::AllChecks();
    return static_cast<size_t>(std::ranges::count_if(checks, [&](const doctor::Check& check) {
        const bool wanted = flags.checks.empty() ||
                            std::ranges::find(flags.checks, check.name) != flags.checks.end();
        return wanted && check.run != nullptr;
    }));
}

Json FiguresJson(const doctor::CostFigures& figures, bool speed) {
    Json json = {{"model", figures.model},
                 {"wire_s_per_token", figures.wire_token_s},
                 {"wire_s_per_prompt", figures.wire_prompt_s}};
    if (!speed) return json;
    json["tokens_per_s"] = figures.tokens_s;
    json["prompt_s"] = figures.prompt_s;
    return json;
}

Json CostJson(const doctor::Cost& cost) {
    const bool speed = !cost.machine.empty();
    return {{"words", cost.Text()},
            {"machine", speed ? Json(cost.machine) : Json()},
            {"hosts", cost.hosts},
            {"tp", cost.tensor_ranks},
            {"context_tokens", cost.context},
            {"prompt_tokens", cost.prompt},
            {"so", FiguresJson(cost.faulty, speed)},
            {"otherwise", FiguresJson(cost.healthy, speed)}};
}

void PrintFindings(const DoctorFlags& flags, const Views& views,
                   const std::vector<doctor::Finding>& findings) {
    if (!flags.json) {
        winsize size{};
        const bool terminal = ::isatty(STDOUT_FILENO) == 1;
        doctor::ReportStyle style{.verbose = flags.verbose, .colour = TakesColour(STDOUT_FILENO)};
        style.checks = ChecksOfAHost(flags);
        for (const auto& view : views) {
            style.hosts.push_back(view->host());
            const bool all = flags.checks.empty();
            if (all) style.lines[view->host()] = doctor::HostLines(*view, flags.verbose);
        }
        if (terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 60) {
            style.columns = std::min<size_t>(size.ws_col, 120);
        }
        PrintOut("{}", doctor::Report(findings, style));
        return;
    }
    // Names of hosts and parts are hostile input, even for the terminal of a program that reads
    // them.
    using doctor::Printable;
    Json list = Json::array();
    for (const doctor::Finding& finding : findings) {
        list.push_back({{"check", finding.check},
                        {"severity", doctor::SeverityName(finding.severity)},
                        {"host", Printable(finding.host)},
                        {"read", Printable(finding.read)},
                        {"expected", Printable(finding.expected)},
                        {"why", Printable(finding.why)},
                        {"fix", Printable(finding.fix)}});
        if (finding.cost) list.back()["cost"] = CostJson(*finding.cost);
    }
    PrintJson({{"findings", list}});
}

// The measurements of --workers; a failed measurement is a finding and does not stop the others.
std::vector<doctor::Finding> Measure(const DoctorFlags& flags) {
    const auto here = doctor::MakeLiveView({.measure = false});
    if (!flags.cluster.empty()) {
        const auto own_job = doctor::NoteOwnJob(*here, flags.fabric);
        if (own_job.has_value()) return {*own_job};
    }
    auto findings = doctor::LookAtWorkers(*here, flags.fabric, !flags.beyond.empty());
    for (const fleet::FoundHost& host : flags.beyond) {
        findings.push_back(
            {"across-measured", doctor::Severity::kNote, host.name,
             fmt::format("on no cable of this host, reached by way of {}", host.via),
             "a cable to every host",
             "its links were not measured from here; a pipeline (--pp) works over "
             "cables between neighbors, --tp needs links between all hosts",
             fmt::format("weft doctor --cluster {} on {}", flags.cluster, ShellWord(host.via))});
    }
    return findings;
}

// The files of --model, on the hosts that answered. unreached: findings of the other hosts.
Result<std::vector<doctor::Finding>> CheckModel(const DoctorFlags& flags, const Views& views,
                                                const std::vector<doctor::Finding>& unreached) {
    std::vector<std::string> hosts;
    for (const std::string& host : flags.hosts) {
        if (std::ranges::find(unreached, host, &doctor::Finding::host) == unreached.end()) {
            hosts.push_back(host);
        }
    }
    std::vector<std::string> names;
    for (const auto& view : views) names.push_back(view->host());
    ProgressLine line;
    std::mutex mutex;
    int shown = -1;
    return doctor::CheckModel(flags.model, fmt::format("{}", fmt::join(names, ", ")), hosts,
                              flags.collect, [&](double done) {
                                  const std::lock_guard lock(mutex);
                                  const int percent = static_cast<int>(100 * done);
                                  if (std::exchange(shown, percent) == percent) return;
                                  line.Show(fmt::format("reading {}: {} %", flags.model, percent));
                              });
}

// --cluster: checks the cluster's hosts that ssh reaches, and the links to all serving hosts.
Status FindClusterOf(DoctorFlags& flags) {
    if (!flags.hosts.empty() || !flags.from.empty() || !flags.fabric.hosts.empty() ||
        !flags.save.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--cluster names the hosts: it excludes --hosts, --from, --workers and "
                         "--save");
    }
    WEFT_ASSIGN(const fleet::ClusterFile file, fleet::ReadClusterFile(flags.cluster));
    std::set<std::string> seen;
    for (const fleet::ClusterHost& host : file.hosts) {
        if (host.ssh.empty()) continue;
        flags.hosts.push_back(host.ssh);
        seen.insert(host.name);
    }
    if (flags.no_measure) return {};
    const auto found =
        fleet::FindCluster(flags.cluster, flags.fabric.key_file, 0, {}, nullptr, true);
    if (!found.ok() && found.error().code != ErrorCode::kTimeout) return found.error();
    if (!found.ok()) {
        flags.cluster_fault = found.error().message;
        return {};
    }
    flags.fabric.key_file = found->key_file;
    flags.fabric.data.neighbours = net::NeighboursText(found->neighbours);
    std::vector<std::string> unseen;
    for (const fleet::FoundHost& host : found->hosts) {
        if (!host.via.empty()) {
            flags.beyond.push_back(host);
            continue;
        }
        flags.fabric.hosts.push_back(host.address);
        flags.fabric.host_names.push_back(host.name);
        if (!seen.contains(host.name)) unseen.push_back(host.name);
    }
    if (unseen.empty()) return {};
    PrintErr(
        "weft: only the links to {} are measured; a check of the host itself needs ssh: 'weft "
        "hosts add USER@HOST', or ssh = \"USER@HOST\" in {}\n",
        fmt::join(unseen, ", "), fleet::PathsOf(flags.cluster).value().file);
    return {};
}

Status RunDoctorCommand(DoctorFlags& flags, int& status) {
    if (flags.list) return PrintList(flags), Status();
    WEFT_TRY(doctor::CheckNames("--ignore", flags.ignored));
    if (!flags.reach.empty()) {
        WEFT_ASSIGN(const std::string outcomes,
                    doctor::ReachPeers(doctor::ParseReach(flags.reach)));
        WriteOut(outcomes);
        return {};
    }
    if (!flags.model_content.empty()) {
        WEFT_ASSIGN(const std::string text, doctor::ModelContentText(flags.model_content));
        WriteOut(text);
        return {};
    }
    if (!flags.model.empty() && (!flags.from.empty() || !flags.save.empty())) {
        return MakeError(ErrorCode::kUsage,
                         "--model excludes --from and --save: a snapshot holds no model");
    }
    if (!flags.cluster.empty()) WEFT_TRY(FindClusterOf(flags));
    if (!flags.save.empty()) return Save(flags);
    const auto is_chosen = [&](const char* check) {
        return flags.checks.empty() || std::ranges::find(flags.checks, check) != flags.checks.end();
    };
    const bool chosen = is_chosen("across-measured");
    const bool fabric = chosen && !flags.fabric.hosts.empty();
    if (fabric) WEFT_TRY(cluster::CheckOptions(flags.fabric));
    std::vector<doctor::Finding> findings;
    size_t peers = 0;
    WEFT_ASSIGN(Views views, Open(flags, findings, peers));
    WEFT_ASSIGN(const auto found, doctor::RunChecks(views, flags.checks, peers));
    views.resize(views.size() - peers);
    if (!flags.model.empty() && is_chosen(doctor::kModelCheck)) {
        WEFT_ASSIGN(auto files, CheckModel(flags, views, findings));
        std::ranges::move(files, std::back_inserter(findings));
    }
    findings.insert(findings.end(), found.begin(), found.end());
    if (chosen && !flags.cluster_fault.empty()) {
        findings.push_back({"across-measured", doctor::Severity::kFail, views.front()->host(),
                            flags.cluster_fault, "an answer of every host of the cluster",
                            "a model can run only over hosts that are found", "weft up"});
    }
    if (fabric) {
        const auto measured = Measure(flags);
        findings.insert(findings.end(), measured.begin(), measured.end());
    }
    for (doctor::Finding& finding : findings) {
        const bool bad = finding.severity > doctor::Severity::kNote;
        if (bad && std::ranges::find(flags.ignored, finding.check) != flags.ignored.end()) {
            finding.severity = doctor::Severity::kNote;
        }
        if (finding.severity == doctor::Severity::kFail) status = 1;
    }
    WEFT_TRY(doctor::StateCosts(findings));
    PrintFindings(flags, views, findings);
    return {};
}

}  // namespace

void AddDoctor(const Command& app, int& status) {
    auto flags = std::make_shared<DoctorFlags>();
    const Command command =
        app.AddCommand("doctor", "Find faults that make a cluster slow or fail");
    command.AddOption("--hosts", flags->hosts, "Check these hosts over ssh, as a,b,c").Commas();
    command.AddOption("--cluster NAME", flags->cluster,
                      "Check this host and, over ssh, the hosts that have an ssh entry in the file "
                      "of this cluster ('weft up'); measure the links to all hosts that answer");
    command.AddOption("--from", flags->from, "Check snapshots, each a tar file or a folder");
    const Option save =
        command.AddOption("--save", flags->save, "Write a snapshot of this machine (- is stdout)");
    command.AddFlag("--real-names", flags->real_names, "With --save: keep names and addresses")
        .Needs(save);
    command.AddOption("--check", flags->checks, "Run only these checks, as a,b").Commas();
    command
        .AddOption("--ignore", flags->ignored,
                   "Downgrade findings of these checks to notes, as a,b")
        .Commas();
    const Option list = command.AddFlag("--list", flags->list, "Explain every check");
    command
        .AddFlag("--markdown", flags->markdown, "With --list: print the section of docs/doctor.md")
        .Needs(list);
    command.AddFlag("--no-measure", flags->no_measure, "Skip the measurements");
    command
        .AddOption("--workers", flags->fabric.hosts,
                   "Measure the links to these workers, as a:7000,b:7000")
        .Commas();
    command.AddOption("--model MODEL", flags->model,
                      "Check that this model is complete, and has the same bytes on all hosts");
    command.AddOption("--model-content", flags->model_content, "").Group("");
    command.AddOption("--key-file", flags->fabric.key_file,
                      "File with the key that the workers share");
    command.AddOption(
        "--transport", flags->fabric.transport,
        "Transport for --workers: " + fmt::format("{}", fmt::join(net::TransportNames(), ", ")));
    command.AddOption("--remote", flags->collect.program, "Path of weft on the hosts (weft)");
    command.AddNumber("--timeout-ms", flags->collect.timeout_ms, 200, 3'600'000,
                      "Time-out for each host (30000)");
    command.AddOption("--reach", flags->reach, "Connect to other hosts, for --hosts").Group("");
    command.AddFlag("-v,--verbose", flags->verbose,
                    "Also print passed checks and sources that could not be read");
    AddJson(command, flags->json);
    command.Footer(
        "Exit status 1 if a check fails. A snapshot holds only the fields that the checks use, "
        "with\n"
        "pseudonyms for names; --save prints which. It holds no keys, environment variables, user\n"
        "names, serial numbers, and no hardware, IPv6 or public addresses.\n\n"
        "Examples:\n"
        "  weft doctor\n"
        "  weft doctor --hosts a,b\n"
        "  weft doctor --hosts a,b --check model-files --model model.gguf\n"
        "  weft doctor --cluster home\n"
        "  weft doctor --workers a:7000,b:7000 --key-file weft.key\n"
        "  weft doctor --save a.tar        (there)\n"
        "  weft doctor --from a.tar --from b.tar");
    command.Callback([flags, &status] {
        flags->collect.measure = !flags->no_measure;
        flags->collect.with_here = !flags->cluster.empty();
        for (std::string& host : flags->fabric.hosts) host = cluster::WithWorkerPort(host);
        if (Status s = RunDoctorCommand(*flags, status); !s.ok())
            status = Fail(s.error(), flags->json);
    });
}

}  // namespace weft::cli
