#include "cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "backend/device_list.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/duration.h"
#include "cli/output.h"
#include "cluster/host_file.h"
#include "cluster/socket.h"
#include "engine/sum_wire.h"
#include "fleet/find.h"
#include "model/hyper.h"
#include "model_files/synthetic.h"
#include "net/fabric.h"

namespace weft::cli {
namespace {

constexpr const char* kCluster = "Cluster";
constexpr const char* kEngine = "Engine";
constexpr int kLauncherGraceMs = 200;
constexpr const char* kDeviceVariable = "WEFT_DEVICE";

// Cuts at any of `separators`; empty pieces are left out.
std::vector<std::string> Pieces(const std::string& text, const char* separators) {
    std::vector<std::string> pieces;
    size_t at = 0;
    while ((at = text.find_first_not_of(separators, at)) != std::string::npos) {
        const size_t end = text.find_first_of(separators, at);
        pieces.push_back(text.substr(at, end - at));
        if (end == std::string::npos) break;
        at = end;
    }
    return pieces;
}

// --device of inference: a list, and what CommonFlags have before is none.
void AddDevices(const Command& app, std::string& devices) {
    app.AddOption("--device", devices,
                  fmt::format("What each rank computes on: {}; or one a rank: A,B,C (default: "
                              "{}, or auto)",
                              backend::kDeviceNames, kDeviceVariable))
        .Valid([](const std::string& names) {
            const Status status = backend::CheckDeviceNames(names);
            return status.ok() ? std::string() : status.error().message;
        })
        .Group(kEngine);
}

// What --device is where it is not given.
Status SetDevices(std::string& devices) {
    if (!devices.empty()) return {};
    const char* own = std::getenv(kDeviceVariable);
    devices = own == nullptr || *own == 0 ? backend::kAutoDevice : own;
    const Status known = backend::CheckDeviceNames(devices);
    if (known.ok()) return {};
    return MakeError(known.error().code, "{}={}: {}", kDeviceVariable, devices.substr(0, 80),
                     known.error().message);
}

// auto is a choice of all ranks together.
Status CheckTrainDevices(const std::string& names) {
    WEFT_TRY(backend::CheckDeviceNames(names));
    if (!backend::HasAuto(names) || names == backend::kAutoDevice) return {};
    return MakeError(ErrorCode::kUsage,
                     "'auto' chooses for all ranks: give it alone, or a device for each rank");
}

}  // namespace

void AddModel(const Command& app, std::string& model, bool& pull, bool needed) {
    const Option option = app.AddOption(
        "MODEL", model,
        fmt::format(
            "A GGUF file, a Hugging Face folder, [hf:]OWNER/NAME[:TYPE] (fetched by 'weft pull'), "
            "a name for one (qwen3:8b, qwen3-8b:q8_0) or synthetic:NAME[:dtype] (random weights of "
            "a known shape: {})",
            model_files::Synthetic::Names()));
    if (needed) option.Required();
    app.AddFlag("--pull", pull, "Fetch a model of the Hub first if it isn't there");
    const auto layers = std::make_shared<int>(0);
    app.AddOption("--layers", *layers, "Only the first N layers of a synthetic model")
        .Positive()
        .TypeName("N");
    app.Check("--layers", [layers, &model] {
        if (*layers == 0) return "";
        if (!model.starts_with("synthetic:")) return "only a synthetic model can be cut";
        model += fmt::format(":layers={}", *layers);
        return "";
    });
}

Option AddDevice(const Command& app, std::string& device) {
    return app
        .AddOption("--device", device,
                   fmt::format("What each rank computes on: {}", backend::kDeviceNames))
        .Valid([](const std::string& name) {
            const Status status = backend::CheckDeviceName(name);
            return status.ok() ? std::string() : status.error().message;
        })
        .ShowDefault();
}

void AddTrainDevices(const Command& app, std::string& devices) {
    const char* own = std::getenv(kDeviceVariable);
    if (own != nullptr && *own != 0) devices = own;
    app
        .AddOption("--device", devices,
                   fmt::format("What each rank trains on: {}; or one for each rank: A,B,C. {} in "
                               "the environment sets the default",
                               backend::kDeviceNames, kDeviceVariable))
        .Valid([](const std::string& names) {
            const Status status = CheckTrainDevices(names);
            return status.ok() ? std::string() : status.error().message;
        })
        .ShowDefault();
}

void AddJson(const Command& app, bool& json) {
    app.AddFlag("--json", json, "Print the result as one JSON object");
}

void AddClusterFlags(const Command& app, CommonFlags& flags) {
    AddRankFlags(app, flags);
    app.AddOption(
           "--split", flags.split,
           "Shares of the ranks or stages, such as 3,2,1; auto: by what each one's device is "
           "measured to read a second, and has memory for")
        .Group(kCluster);
}

void AddDataWords(const Command& app, cluster::DataWords& data) {
    app.AddOption("--data-ports", data.ports,
                  "Ports that data between hosts may take, as 7001-7010 (default: any)")
        .TypeName("A-B")
        .Group(kCluster);
    app.AddOption("--advertise", data.advertise,
                  "An address of this host that others reach and it doesn't know (NAT, containers)")
        .TypeName("ADDR")
        .Group(kCluster);
    // Of 'weft up': who is heard now, and a file that always says so.
    app.AddOption("--neighbours", data.neighbours, "").Group("");
    app.AddOption("--neighbours-file", data.neighbours_file, "").Group("");
}

std::vector<std::string> WorkerArguments(const cluster::DataWords& data) {
    std::vector<std::string> words = {"worker"};
    const auto add = [&](const char* flag, const std::string& value) {
        if (!value.empty()) words.insert(words.end(), {flag, value});
    };
    add("--data-ports", data.ports);
    add("--advertise", data.advertise);
    add("--neighbours", data.neighbours);
    return words;
}

void AddRankFlags(const Command& app, CommonFlags& flags) {
    flags.command = app;
    app.AddOption("--local", flags.cluster.local,
                  "Ranks on this machine, up to 256 (default: as --tp, --pp)")
        .Range(1, 256)
        .Group(kCluster);
    app.AddOption(
           "--hosts", flags.hosts,
           "Workers to use, as host,host or host:port (7000); each runs 'weft worker --listen'")
        .Group(kCluster);
    app.AddOption(
           "--hostfile", flags.hostfile,
           "The same from a file, a host a line; also DeepSpeed's and Open MPI's ('b slots=1')")
        .Group(kCluster);
    app.AddOption("--cluster", flags.named_cluster,
                  "The hosts of a cluster, each of which runs 'weft up': those that "
                  "~/.config/weft/clusters/NAME.toml names, or all that are found")
        .TypeName("NAME")
        .Group(kCluster);
    app.AddOption("--wait-for", flags.cluster.wait_for,
                  "Wait for N workers that dial in (each runs 'weft worker --join THIS_HOST')")
        .Range(1, 255)
        .TypeName("N")
        .Group(kCluster);
    app.AddOption("--listen", flags.cluster.listen,
                  "With --wait-for: where they dial in (default: every address, port 7000)")
        .TypeName("HOST:PORT")
        .Group(kCluster);
    app.AddOption("--wait", flags.wait,
                  "How long hosts may take to come, as 90s or 10m (default: --hosts 3/4 of "
                  "--timeout-ms, --wait-for 10m, ranks of a launcher 1m)")
        .TypeName("TIME")
        .Group(kCluster);
    app.AddOption("--key-file", flags.cluster.key_file, "The key shared with the workers")
        .Group(kCluster);
    app.AddOption("--timeout-ms", flags.cluster.timeout_ms,
                  "Silence after which a rank counts as lost (5000)")
        .Range(200, 3'600'000)
        .Group(kCluster);
    app.AddOption("--rdma-device", flags.cluster.rdma_device,
                  "RDMA device of all ranks, such as mlx5_0:1, or one a rank: A,B,C (default: "
                  "by the hosts' addresses)")
        .Group(kCluster);
    app.AddOption("--gid-index", flags.cluster.gid_index,
                  "Entry of the RDMA port's GID table (default: RoCE v2 with its IPv4 address)")
        .Range(0, 1023)
        .Group(kCluster);
    app.AddOption("--data-net", flags.cluster.data_net,
                  "Networks for the links between hosts, as 10.0.1.0/24 or an interface (default: "
                  "of each pair of hosts, the fastest that both are in)")
        .TypeName("CIDR|IFACE,...")
        .Group(kCluster);
    AddDataWords(app, flags.cluster.data);
    app.AddFlag("-v,--verbose", flags.cluster.verbose,
                "Say who is linked to whom, over which network")
        .Group(kCluster);
    app.AddFlag("--checksum", flags.cluster.checksum,
                "Check every message of the collectives for changed bytes (CRC-32C)")
        .Group(kCluster);
    app.AddOption("--net-table", flags.net_table,
                  "Measured table of the fabric: auto (cached or measured), off (built in) or "
                  "remeasure")
        .OneOf({"auto", "off", "remeasure"})
        .Group(kCluster);
}

void AddLayoutFlags(const Command& app, CommonFlags& flags) {
    app.AddOption("--tp", flags.job.tp,
                  "Tensor-parallel ranks (default: all ranks; where each host has one rank, --tp "
                  "or --pp, whichever answers sooner over the measured network)")
        .Range(1, 1024)
        .Group(kCluster);
    app.AddOption("--ep", flags.job.ep,
                  "Expert groups of the tensor ranks: each holds whole experts (default: 1, or as "
                  "many as the quantization needs)")
        .Range(1, 1024)
        .Group(kCluster);
    app.AddOption("--pp", flags.job.pp, "Pipeline stages (default: 1, or as for --tp)")
        .Range(1, 1024)
        .Group(kCluster);
    app.AddOption("--transport", flags.cluster.transport,
                  "auto, shm, tcp, verbs or mpi (auto: shm within a host, verbs where RDMA is, "
                  "mpi between hosts of an mpirun)")
        .OneOf(net::TransportNames())
        .Group(kCluster);
    app.AddOption("-t,--threads", flags.job.threads, "Threads per rank (default: its cores)")
        .Range(1, 1024)
        .Group(kEngine);
    app.AddOption("--trace", flags.trace_file, "Write a timeline that Perfetto opens")
        .Group(kEngine);
}

void AddEngineFlags(const Command& app, CommonFlags& flags) {
    app.AddOption(
           "--ctx", flags.ctx,
           "Most tokens of a sequence, prompt and answer together, as 4096, 8k (8000) or 8K "
           "(8192), at most the model's trained context, to which RoPE scaling in its file counts; "
           "0: that context; auto (default): as needed; serve and a conversation: the model's "
           "context, at most 8192")
        .Range(CommonFlags::kAutomaticContext, int64_t{1} << 30)
        .Tokens(CommonFlags::kAutomaticContext)
        .Group(kEngine);
    app.AddOption("--chunk", flags.job.chunk, "Most prompt tokens in one step (512)")
        .Range(1, 65536)
        .Group(kEngine);
    app.AddOption("--kv", flags.kv, "KV cache type: f16 (default), bf16, q8_0 or f32")
        .Group(kEngine);
    flags.job.device.clear();
    AddDevices(app, flags.job.device);
    app.AddFlag("--reference", flags.job.reference,
                "Reference kernels, float32 activations and KV cache: slow, for checking")
        .Group(kEngine);
    app.AddFlag("--exact", flags.job.exact,
                "Round activations to nothing narrower than float32: on a GPU no products in "
                "int8 or f16, on the CPU the reference kernels, which are slow")
        .Group(kEngine);
    app.AddOption("--overlap", flags.overlap,
                  "Compute one half of a prompt's rows while the other's sums are on the wire: "
                  "auto (where the wire is slow), off or on")
        .OneOf({"auto", "off", "on"})
        .Group(kEngine);
    app.AddOption("--wire", flags.wire,
                  "What the sums of tensor ranks cross the links as: auto (f64, or f32 between "
                  "hosts whose network was measured to be slow), f64 (any split gives the same "
                  "bits), f32, bf16 or q8 (fewer bytes, less exact)")
        .OneOf(engine::SumWireNames())
        .Group(kEngine);
    app.AddOption("--gpu-sum", flags.gpu_sum,
                  "How GPUs wait for the sums of tensor ranks, in steps of few tokens: auto, split "
                  "(each ends a submission) or spin (the GPU waits within one, where a trial at "
                  "the start shows that it can)")
        .OneOf({"auto", "split", "spin"})
        .Group(kEngine);
    app.AddOption("--weights-from", flags.weights_from,
                  "0: only rank 0 reads the model; the others get their shards from it over the "
                  "network, and need no copy of the file")
        .Range(0, 0)
        .Group(kEngine);
    app.AddFlag("!--no-proof", flags.job.proof,
                "Start without the proof that several ranks compute what one rank does")
        .Group(kEngine);
    app.AddFlag("--verify", flags.job.verify,
                "Compare checksums between tensor ranks at every step")
        .Group(kEngine);
    AddJson(app, flags.json);
}

void AddLora(const Command& app, CommonFlags& flags) {
    app.AddOption("--lora", flags.lora,
                  "A LoRA adapter (adapter_config.json and adapter_model.safetensors) beside the "
                  "model, whose weights stay as they are")
        .TypeName("DIR")
        .Group(kEngine);
}

void AddRecoveryFlags(const Command& app, CommonFlags& flags) {
    app.AddOption("--rejoin-ms", flags.cluster.rejoin_ms,
                  "When a rank is lost, go on once it is back: it is started again, or its "
                  "host's worker is called for so long (0: the job ends; serve: 60000 unless "
                  "--max-restarts is 0)")
        .Range(0, 3'600'000)
        .Group(kCluster);
    app.AddFlag("--elastic", flags.cluster.elastic,
                "When a rank is lost (and not back within --rejoin-ms), go on with fewer; with "
                "--wait-for, go on with more where more workers dial in")
        .Group(kCluster);
}

void AddDraftFlags(const Command& app, engine::DraftOptions& draft) {
    const char* group = "Drafts (several tokens a step)";
    app.AddFlag("--lookup", draft.lookup,
                "Guess that the text goes on as it did before: fast where the answer quotes or "
                "edits its prompt, harmless elsewhere")
        .Group(group);
    app.AddOption("--draft", draft.model,
                  "A small model with the same vocabulary, which guesses on rank 0 what MODEL "
                  "then checks in one step; or mtp: MODEL's own head for multi-token prediction "
                  "guesses (DeepSeek V3, GLM 4.5, Qwen3-Next, Qwen 3.5 and later)")
        .TypeName("MODEL|mtp")
        .Group(group);
    app.AddOption("--draft-tokens", draft.tokens,
                  "Most tokens guessed for a step (--lookup: 16, --draft: 8, of mtp 4); fewer, or "
                  "none, where guesses are seldom right")
        .Range(int64_t{1}, engine::kMostDraftTokens)
        .TypeName("K")
        .Group(group);
    app.AddFlag("--draft-always", draft.always,
                "Guess that many at every step, whether it pays or not (to measure)")
        .Group(group);
}

namespace {

Status ResolveCluster(CommonFlags& flags) {
    if (!flags.hosts.empty() || !flags.hostfile.empty() || flags.cluster.wait_for > 0 ||
        flags.cluster.local > 1) {
        return MakeError(ErrorCode::kUsage,
                         "--cluster names the hosts: it excludes --hosts, --hostfile, --wait-for "
                         "and --local");
    }
    WEFT_ASSIGN(
        const fleet::FoundCluster found,
        fleet::FindCluster(flags.named_cluster, flags.cluster.key_file, flags.cluster.wait_ms,
                           flags.needed_hosts, &flags.missing_hosts));
    flags.cluster.key_file = found.key_file;
    flags.cluster.host_names.clear();
    flags.cluster.data.neighbours = net::NeighboursText(found.neighbours);
    if (const auto herald = found.herald; herald != nullptr) {
        flags.cluster.addresses_now = [herald](const std::string& name) {
            return fleet::AddressesOf(name, herald->Now());
        };
        flags.cluster.data.neighbours_now = [herald] {
            return net::NeighboursText(fleet::NeighboursOf(herald->Now()));
        };
    }
    for (const fleet::FoundHost& host : found.hosts) {
        flags.cluster.hosts.push_back(host.address);
        flags.cluster.host_names.push_back(host.name);
        Log(LogLevel::kInfo, "rank {} is {}, {}", flags.cluster.hosts.size(), host.name,
            host.address);
    }
    return {};
}

// --ctx, where it is given.
Result<int64_t> ContextAsked(const CommonFlags& flags) {
    if (flags.ctx > 0) return flags.ctx;
    WEFT_ASSIGN(const auto source, model_files::OpenModel(flags.job.model));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    return hyper.context;
}

}  // namespace

Status ResolveHosts(CommonFlags& flags) {
    std::vector<std::string>& hosts = flags.cluster.hosts;
    hosts = Pieces(flags.hosts, ",");
    if (!flags.hostfile.empty()) {
        if (!hosts.empty()) {
            return MakeError(ErrorCode::kUsage, "--hosts and --hostfile exclude each other");
        }
        WEFT_ASSIGN(hosts, cluster::ReadHostFile(flags.hostfile));
    }
    for (std::string& host : hosts) host = cluster::WithWorkerPort(host);
    std::string& listen = flags.cluster.listen;
    if (!listen.empty()) listen = cluster::WithWorkerPort(listen);
    if (!flags.wait.empty()) {
        WEFT_ASSIGN(const double wait_s, ParseTime("--wait", flags.wait));
        flags.cluster.wait_ms = std::max<int64_t>(1, std::llround(wait_s * 1000));
    }
    return flags.named_cluster.empty() ? Status() : ResolveCluster(flags);
}

void CatchStop(CommonFlags& flags) {
    // A launcher that ends all ranks because one is lost shall not hide which one it was.
    const bool launched = flags.cluster.launched != nullptr;
    flags.cluster.stop = CatchInterrupts(launched ? kLauncherGraceMs : 0);
}

Status ResolveLocal(CommonFlags& flags, const std::vector<std::pair<const char*, int>>& layout) {
    if (cluster::NamesHosts(flags.cluster) || flags.cluster.launched != nullptr) return {};
    constexpr int64_t kMost = 1 << 20;  // more than any cluster takes
    int64_t ranks = 1;
    std::vector<std::string> words;
    for (const auto& [flag, value] : layout) {
        if (value <= 0) continue;
        ranks = std::min(kMost, ranks * value);
        words.push_back(fmt::format("{} {}", flag, value));
    }
    int& local = flags.cluster.local;
    if (local == 1 && !flags.command.Given("--local")) local = static_cast<int>(ranks);
    if (local % ranks == 0) return {};
    return MakeError(ErrorCode::kUsage,
                     "--local {} starts {} rank{}, and {} is a layout of {}. Leave --local out, or "
                     "change one of them",
                     local, local, local == 1 ? "" : "s", fmt::join(words, " "), ranks);
}

Status Resolve(CommonFlags& flags) {
    WEFT_TRY(ResolveHosts(flags));
    WEFT_TRY(SetDevices(flags.job.device));
    WEFT_TRY(ResolveLocal(flags, {{"--tp", flags.job.tp}, {"--pp", flags.job.pp}}));
    flags.job.split_auto = flags.split == "auto";
    if (!flags.job.split_auto) {
        WEFT_ASSIGN(flags.job.split, model::ParseShares(flags.split));
    }
    if (flags.ctx >= 0) {
        WEFT_ASSIGN(flags.job.ctx, ContextAsked(flags));
    }
    WEFT_ASSIGN(flags.job.kv_dtype, engine::ParseKvType("--kv", flags.kv));
    if (!flags.lora.empty()) flags.job.adapters = {{"lora", flags.lora}};
    WEFT_ASSIGN(flags.job.overlap, engine::ParseOverlap(flags.overlap));
    WEFT_ASSIGN(flags.job.wire, engine::ParseSumWire(flags.wire));
    WEFT_ASSIGN(flags.job.device_sum, engine::ParseDeviceSum(flags.gpu_sum));
    flags.job.feed = flags.weights_from == 0;
    WEFT_ASSIGN(flags.job.net_table, fabric::ParseNetTable(flags.net_table));
    CatchStop(flags);
    flags.job.trace = !flags.trace_file.empty();
    return {};
}

int Fail(const Error& error, bool json) {
    if (json) {
        PostJson({{"error", error.message}, {"exit_status", ExitStatus(error.code)}});
    }
    // (A command that stops since nobody reads what it says: FinishOutput has the reason.)
    if (error.code == ErrorCode::kCancelled && OutputFailed()) return ExitStatus(error.code);
    const char* kind = error.code == ErrorCode::kCancelled ? "" : "error: ";
    WriteErr(fmt::format("weft: {}{}\n", kind, PrintableLines(error.message)), true);
    return ExitStatus(error.code);
}

}  // namespace weft::cli
