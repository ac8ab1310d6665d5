// weft bench: prefill and decode speed over a sweep of layouts, transports and thread counts. Ranks
// start once per configuration. Each test runs once to warm up, and then -r times.
#include <algorithm>
#include <ctime>
#include <optional>

#include "backend/device.h"
#include "backend/device_list.h"
#include "base/text.h"
#include "cli/bench/bench_predict.h"
#include "cli/bench/bench_table.h"
#include "cli/bench/summary.h"
#include "cli/commands.h"
#include "cli/terminal/loading_line.h"
#include "cluster/frame.h"
#include "engine/rank/device_options.h"
#include "engine/rank/sum_wire.h"
#include "engine/start/measure.h"
#include "hw/control_group.h"
#include "hw/cpu.h"
#include "net/fabric.h"

namespace weft::cli {
namespace {

constexpr const char* kBenchFooter =
    "Comma-separated lists make a sweep. -o json, jsonl and csv have llama-bench's field names.\n\n"
    "Examples:\n"
    "  weft bench model.gguf -t 2\n"
    "  weft bench synthetic:llama-3.2-1b --tp 1,2 -p 512 -n 64 -t 1 -r 3\n"
    "  weft bench model.gguf --seqs 1,8,32 -p 256 -n 128\n"
    "  weft bench model.gguf --device vulkan --power\n"
    "  weft bench model.gguf --tp 2 --hosts b:7000 --machines 2xmine.json,tcp\n"
    "  weft bench model.gguf --tp 2 --transport shm,tcp -t 1 -p 0 -n 128 -o json";

struct BenchFlags {
    CommonFlags common;
    std::vector<int64_t> prompts = {512}, generates = {128}, depths = {0}, seqs = {1};
    std::vector<int> threads = {0}, tp, pp = {1};
    std::vector<std::string> transports = {"auto"};
    int repetitions = 5;
    std::string form = "md", machines;
    bool no_warmup = false;
    bool power = false;
};

// One start of the ranks.
struct Configuration {
    int tp, pp, threads;
    std::string transport;
};

std::vector<Configuration> Sweep(const BenchFlags& flags) {
    std::vector<Configuration> all;
    for (int tp : flags.tp) {
        for (int pp : flags.pp) {
            for (const std::string& transport : flags.transports) {
                // A single rank has no links, so one transport is enough.
                if (tp * pp == 1 && transport != flags.transports.front()) continue;
                for (int threads : flags.threads) all.push_back({tp, pp, threads, transport});
            }
        }
    }
    return all;
}

Status CheckFlags(BenchFlags& flags) {
    const CommonFlags& common = flags.common;
    const int ranks = cluster::RanksOf(common.cluster);
    const bool fixed = cluster::NamesHosts(common.cluster) || common.cluster.launched != nullptr;
    if (flags.tp.empty()) flags.tp = {flags.pp == std::vector<int>{1} ? ranks : 1};
    for (const std::string& name : flags.transports) {
        WEFT_TRY(net::ParseTransport(name));
    }
    constexpr int kMost = cluster::kMostRanks;
    const auto positive = [](int n) { return n >= 1 && n <= kMost; };
    if (!std::ranges::all_of(flags.tp, positive) || !std::ranges::all_of(flags.pp, positive)) {
        return MakeError(ErrorCode::kUsage, "--tp and --pp take numbers from 1 to {}", kMost);
    }
    const auto sound = [](int64_t n) { return n >= 0 && n <= 1 << 20; };
    if (!std::ranges::all_of(flags.prompts, sound) ||
        !std::ranges::all_of(flags.generates, sound) || !std::ranges::all_of(flags.depths, sound)) {
        return MakeError(ErrorCode::kUsage, "-p, -n and -d take numbers from 0 to 1048576");
    }
    const auto few = [](int64_t n) { return n >= 1 && n <= 1024; };
    if (!std::ranges::all_of(flags.seqs, few) ||
        *std::ranges::max_element(flags.seqs) > common.job.chunk) {
        return MakeError(ErrorCode::kUsage,
                         "--seqs takes numbers from 1 to 1024, and at most --prefill-chunk ({})",
                         common.job.chunk);
    }
    const std::vector<Configuration> sweep = Sweep(flags);
    if (sweep.size() > 1 && !common.trace_file.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--trace {} holds one configuration, and the lists give {}: give one "
                         "value of each",
                         common.trace_file, sweep.size());
    }
    for (const Configuration& c : sweep) {
        if (!fixed && (ranks == 1 || c.tp * c.pp <= ranks)) continue;
        if (c.tp * c.pp == ranks) continue;
        return MakeError(ErrorCode::kUsage, "TP {} x PP {} needs {} ranks; there are {}", c.tp,
                         c.pp, c.tp * c.pp, ranks);
    }
    return {};
}

// "llama 135M Q4_1": the architecture, the size, the type with the most bytes.
std::string TypeName(const model_files::ModelSource& source, const model::Hyper& hyper,
                     int64_t parameters) {
    const double count = static_cast<double>(parameters);
    const std::string size =
        count >= 1e9 ? fmt::format("{:.1f}B", count * 1e-9) : fmt::format("{:.0f}M", count * 1e-6);
    return fmt::format("{} {} {}", hyper.architecture, size, source.MainType());
}

Result<BenchModel> DescribeModel(const engine::Job& job) {
    const std::vector<std::string> devices = backend::DeviceNames(job.device);
    WEFT_ASSIGN(const auto source, model_files::OpenModel(job.model));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    WEFT_TRY(model::CheckContext(hyper, job.ctx, fmt::format("--ctx {}", job.ctx)));
    WEFT_ASSIGN(const backend::DeviceInfo device, backend::DescribeDevice(devices[0]));
    BenchModel model;
    // Describes rank 0's device before anything starts; another host's GPU is unknown.
    model.backend = device.backend;
    model.parameters = source->Parameters();
    model.filename = job.model;
    model.type = TypeName(*source, hyper, model.parameters);
    model.size_bytes = source->TotalBytes();
    model.cpu = DetectCpu().model;
    return model;
}

using Reports = std::vector<engine::RankReport>;

// A sensor that fails during the test reports the joules of its last reading.
BenchPower PowerBetween(const Reports& before, const Reports& after, double seconds) {
    BenchPower power;
    power.seconds = seconds;
    for (size_t rank = 0; rank < after.size(); ++rank) {
        const engine::RankReport& now = after[rank];
        if (rank >= before.size() || before[rank].sensors != now.sensors) {
            power.notes.push_back(
                fmt::format("host {}: its power sensors changed during the run", now.host));
            continue;
        }
        for (size_t i = 0; i < now.sensors.size(); ++i) {
            const double joules = now.sensor_joules[i] - before[rank].sensor_joules[i];
            power.sensors.push_back({now.host, now.sensors[i], joules / seconds});
        }
        if (!now.power_note.empty()) {
            power.notes.push_back(fmt::format("host {}: {}", now.host, now.power_note));
        }
    }
    return power;
}

Result<BenchRow> RunTest(const BenchFlags& flags, engine::StepRunner& runner, int64_t prompt,
                         int64_t generate, int64_t depth, int64_t seqs, BenchRow row,
                         const std::function<void(int)>& show) {
    row.prompt = prompt;
    row.generate = generate;
    row.depth = depth;
    row.seqs = seqs;
    if (depth > 0) WEFT_TRY(engine::TimePrompts(runner, seqs, depth));
    row.time = UtcText(std::time(nullptr), "%Y-%m-%dT%H:%M:%SZ");
    Reports before;
    int64_t begin_ns = 0;
    for (int i = flags.no_warmup ? 0 : -1; i < flags.repetitions; ++i) {
        show(i);
        if (i == 0 && flags.power) {
            WEFT_ASSIGN(before, engine::SurveyRanks(runner));
            begin_ns = NowNs();
        }
        WEFT_ASSIGN(const double seconds, prompt > 0
                                              ? engine::TimePrompts(runner, seqs, prompt)
                                              : engine::TimeTokens(runner, seqs, generate, depth));
        if (i >= 0) row.seconds.push_back(seconds);
    }
    if (flags.power) {
        const double seconds = SecondsSince(begin_ns);
        WEFT_ASSIGN(const Reports after, engine::SurveyRanks(runner));
        row.power = PowerBetween(before, after, seconds);
    }
    return row;
}

struct BenchTest {
    int64_t prompt, generate, depth, seqs;
};

// Runs a test and prints its row.
Status ShowTest(const BenchFlags& flags, engine::StepRunner& runner, const BenchTest& t,
                const BenchRow& row, const std::string& label, const BenchPredictor* predictor,
                BenchTable& table) {
    if (t.prompt + t.generate == 0) return {};
    ProgressLine progress;
    const auto show = [&](int i) {
        progress.Show(
            fmt::format("{}{}{}{}: {}", label, t.prompt > 0 ? "pp" : "tg", t.prompt + t.generate,
                        t.seqs > 1 ? fmt::format(" x {}", t.seqs) : "",
                        i < 0 ? "warm-up" : fmt::format("{} of {}", i + 1, flags.repetitions)));
    };
    WEFT_ASSIGN(BenchRow done,
                RunTest(flags, runner, t.prompt, t.generate, t.depth, t.seqs, row, show));
    progress.Clear();
    if (predictor != nullptr) done.predicted_ts = predictor->Rate(done);
    table.Row(done);
    return {};
}

Status RunConfiguration(const BenchFlags& flags, const Configuration& c, const std::string& label,
                        const BenchPredictor* predictor, BenchTable& table) {
    cluster::ClusterOptions cluster = flags.common.cluster;
    engine::Job job = flags.common.job;
    const int ranks = c.tp * c.pp;
    if (!cluster::NamesHosts(cluster)) cluster.local = ranks;
    cluster.transport = c.transport;
    job.tp = c.tp;
    job.pp = c.pp;
    job.threads = c.threads;
    if (ranks == 1) job.split.clear();
    if (ranks == 1) job.split_auto = false;
    const int64_t most = std::max(
        {int64_t{1}, *std::ranges::max_element(flags.prompts),
         *std::ranges::max_element(flags.generates) + *std::ranges::max_element(flags.depths)});
    job.ctx = std::max(job.ctx, most);
    const int64_t seqs = *std::ranges::max_element(flags.seqs);
    WEFT_ASSIGN(const backend::DeviceInfo device,
                backend::DescribeDevice(backend::DeviceNames(job.device)[0]));
    const int64_t page = device.target.page_tokens;
    job.kv_tokens = seqs * ((most + page - 1) / page * page);
    job.max_outputs = seqs;
    job.state_slots = seqs;
    job.power = flags.power;
    std::optional<LoadingLine> line;
    line.emplace(label + "loading", cluster);
    WEFT_ASSIGN(const auto runner, engine::StepRunner::Start(cluster, job));
    line.reset();
    const std::vector<std::string> devices = backend::DeviceNames(job.device);
    table.SetDevice(runner->rank().device()->info(), std::ranges::count(devices, "cpu") > 0);
    BenchRow row;
    row.tp = c.tp;
    row.pp = c.pp;
    row.ep = job.ep;
    row.threads = c.threads > 0
                      ? c.threads
                      : engine::DefaultThreads(runner->cluster().cores().size(), CpuQuota());
    row.transport = ranks == 1 ? "none" : runner->cluster().fabric().transport;
    const engine::Rank& rank = runner->rank();
    row.wire = c.tp == 1 ? "none" : engine::SumWireName(rank.wire());
    row.prompt_wire = c.tp == 1 ? "none" : engine::SumWireName(rank.prompt_wire());
    row.split = ranks == 1 ? "" : fmt::format("{}", fmt::join(runner->rank().job().split, ","));
    row.kv_type = job.kv_dtype;
    row.chunk = job.chunk;
    const auto test = [&](int64_t prompt, int64_t generate, int64_t depth, int64_t at_once) {
        return ShowTest(flags, *runner, {prompt, generate, depth, at_once}, row, label, predictor,
                        table);
    };
    for (const int64_t at_once : flags.seqs) {
        for (int64_t prompt : flags.prompts) WEFT_TRY(test(prompt, 0, 0, at_once));
        for (int64_t depth : flags.depths) {
            for (int64_t generate : flags.generates) WEFT_TRY(test(0, generate, depth, at_once));
        }
    }
    WEFT_ASSIGN(const auto reports, runner->Finish());
    return job.trace ? WriteTrace(flags.common.trace_file, reports) : Status();
}

Status RunSweep(const BenchFlags& flags, const BenchPredictor* predictor, BenchTable& table) {
    const std::vector<Configuration> sweep = Sweep(flags);
    for (size_t i = 0; i < sweep.size(); ++i) {
        const std::string label = fmt::format("configuration {} of {} (tp {}, pp {}): ", i + 1,
                                              sweep.size(), sweep[i].tp, sweep[i].pp);
        WEFT_TRY(RunConfiguration(flags, sweep[i], label, predictor, table));
    }
    return {};
}

Status RunBenchCommand(BenchFlags& flags) {
    if (flags.common.json && flags.common.command.Given("--output") && flags.form != "json") {
        return MakeError(ErrorCode::kUsage,
                         "--json is -o json, which contradicts -o {}: use one of them", flags.form);
    }
    const int local = flags.common.cluster.local;
    WEFT_TRY(Resolve(flags.common));
    flags.common.cluster.local = local;
    if (flags.common.json) flags.form = "json";
    WEFT_TRY(CheckFlags(flags));
    WEFT_ASSIGN(const BenchForm form, ParseBenchForm(flags.form));
    WEFT_ASSIGN(const BenchModel model, DescribeModel(flags.common.job));
    WEFT_ASSIGN(const auto predictor,
                BenchPredictor::Make(flags.machines, flags.common.job.model,
                                     flags.common.job.kv_dtype, model.on_gpu()));
    BenchTable table(form, model, flags.power, predictor ? predictor->machines() : "");
    table.Begin();
    const Status ran = RunSweep(flags, predictor.get(), table);
    if (!ran.ok()) {
        table.BreakOff(flags.common.json);
        return ran;
    }
    table.End();
    return {};
}

template <typename T>
void AddList(const Command& app, const char* name, std::vector<T>& values, const char* help) {
    app.Group("Sweep").AddOption(name, values, help).Commas().OneEach();
}

}  // namespace

void AddBench(const Command& app, int& status) {
    auto flags = std::make_shared<BenchFlags>();
    const Command bench = app.AddCommand(
        "bench", "Measure the speed of a model over a sweep of layouts", kBenchFooter);
    AddModel(bench, flags->common.job.model, flags->common.pull);
    AddList(bench, "-p,--n-prompt", flags->prompts,
            "Prompt tokens of a prefill test (512; 0: no prefill test)");
    AddList(bench, "-n,--n-gen", flags->generates,
            "Tokens of a decode test (128; 0: no decode test)");
    AddList(bench, "-d,--n-depth", flags->depths,
            "Tokens in the KV cache before a decode test (0)");
    AddList(bench, "--seqs", flags->seqs,
            "Concurrent sequences of -p or -n tokens each, as in serving (1)");
    AddList(bench, "-t,--threads", flags->threads,
            "Threads per rank (default: the cores of the rank)");
    AddList(bench, "--tp", flags->tp, "Tensor-parallel ranks (default: all ranks)");
    AddList(bench, "--pp", flags->pp, "Pipeline stages (1)");
    bench.AddNumber("--ep", flags->common.job.ep, 1, static_cast<int>(cluster::kMostRanks),
                    "Expert-parallel groups of the tensor ranks (1)");
    AddList(bench, "--transport", flags->transports,
            "Transport between ranks: auto, shm, tcp, verbs or mpi");
    bench.AddNumber("-r,--repetitions", flags->repetitions, 1, 1000,
                    "Repetitions of each test (5)");
    bench.AddOption("--machines", flags->machines,
                    "Add a column with the prediction of 'weft plan' for these machines, as "
                    "2xstrix-halo,roce (default: this host, if its GPU is known)");
    bench.AddFlag("--no-warmup", flags->no_warmup, "Skip the warm-up run");
    bench.AddOption("--trace", flags->common.trace_file,
                    "Write a timeline of one configuration for Perfetto to this file");
    bench.AddFlag("--power", flags->power,
                  "Report watts and joules per token from the hosts' sensors: RAPL, amdgpu, i915, "
                  "xe, NVML, ACPI");
    bench.AddOption("-o,--output", flags->form, "Output format: md (default), json, jsonl or csv");
    AddClusterFlags(bench, flags->common);
    AddLora(bench, flags->common);
    AddEngineFlags(bench, flags->common);
    SetCallback(bench, flags, flags->common.json, status, RunBenchCommand);
}

}  // namespace weft::cli
