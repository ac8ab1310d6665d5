#include "cli/flags.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <sstream>

#include "base/file.h"
#include "cli/output.h"
#include "model_files/synthetic.h"
#include "net/fabric.h"

namespace weft::cli {
namespace {

constexpr const char* kCluster = "Cluster";
constexpr const char* kEngine = "Engine";
constexpr int kLauncherGraceMs = 200;

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

// One host:port a line; what follows a # is a comment.
Result<std::vector<std::string>> ReadHostFile(const std::string& path) {
    WEFT_ASSIGN(const std::string text, ReadTextFile(path, 1 << 20));
    std::vector<std::string> hosts;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const auto words = Pieces(line.substr(0, line.find('#')), " \t\r");
        if (!words.empty()) hosts.push_back(words[0]);
    }
    return hosts;
}

}  // namespace

void AddModel(CLI::App& app, std::string& model, bool& pull) {
    app.add_option(
           "MODEL", model,
           fmt::format(
               "A GGUF file, a Hugging Face folder, hf:OWNER/NAME[:TYPE] (fetched "
               "by 'weft pull') or synthetic:NAME[:dtype] (random weights of a known shape: {})",
               model_files::Synthetic::Names()))
        ->required();
    app.add_flag("--pull", pull, "With hf:...: fetch the model first if it isn't there");
    const auto layers = std::make_shared<int>(0);
    app.add_option("--layers", *layers, "Only the first N layers of a synthetic model")
        ->check(CLI::PositiveNumber)
        ->type_name("N");
    app.parse_complete_callback([layers, &model] {
        if (*layers == 0) return;
        if (!model.starts_with("synthetic:")) {
            throw CLI::ValidationError("--layers", "only a synthetic model can be cut");
        }
        model += fmt::format(":layers={}", *layers);
    });
}

CLI::Option* AddDevice(CLI::App& app, std::string& device) {
    const auto check = [](const std::string& name) {
        const Status status = backend::CheckDeviceName(name);
        return status.ok() ? std::string() : status.error().message;
    };
    return app.add_option("--device", device, "What each rank computes on: cpu")
        ->check(CLI::Validator(check, ""))
        ->capture_default_str();
}

void AddJson(CLI::App& app, bool& json) {
    app.add_flag("--json", json, "Print the result as one JSON object");
}

void AddClusterFlags(CLI::App& app, CommonFlags& flags) {
    AddRankFlags(app, flags);
    app.add_option("--split", flags.split, "Shares of the ranks or stages, such as 3,2,1")
        ->group(kCluster);
}

void AddRankFlags(CLI::App& app, CommonFlags& flags) {
    app.add_option("--local", flags.cluster.local,
                   "Ranks on this machine, up to 256 (default: as --tp, --pp)")
        ->check(CLI::Range(1, 256))
        ->group(kCluster);
    app.add_option("--hosts", flags.hosts,
                   "Workers to use, as host:port,host:port (each runs 'weft worker --listen')")
        ->group(kCluster);
    app.add_option("--hostfile", flags.hostfile, "The same from a file, one host:port a line")
        ->group(kCluster);
    app.add_option("--key-file", flags.cluster.key_file, "The key shared with the workers")
        ->group(kCluster);
    app.add_option("--timeout-ms", flags.cluster.timeout_ms,
                   "Silence after which a rank counts as lost (5000)")
        ->check(CLI::Range(200, 3'600'000))
        ->group(kCluster);
    app.add_option("--rdma-device", flags.cluster.rdma_device,
                   "RDMA device of all ranks, such as mlx5_0:1, or one a rank: A,B,C (default: "
                   "by the hosts' addresses)")
        ->group(kCluster);
    app.add_option("--gid-index", flags.cluster.gid_index,
                   "Entry of the RDMA port's GID table (default: RoCE v2 with its IPv4 address)")
        ->check(CLI::Range(0, 1023))
        ->group(kCluster);
    app.add_option("--data-net", flags.cluster.data_net,
                   "Networks for the links between hosts, as 10.0.1.0/24 or an interface (default: "
                   "of each pair of hosts, the fastest that both are in)")
        ->type_name("CIDR|IFACE,...")
        ->group(kCluster);
    app.add_flag("--checksum", flags.cluster.checksum,
                 "Check every message of the collectives for changed bytes (CRC-32C)")
        ->group(kCluster);
    app.add_option("--net-table", flags.net_table,
                   "Measured table of the fabric: auto (cached or measured), off (built in) or "
                   "remeasure")
        ->check(CLI::IsMember({"auto", "off", "remeasure"}))
        ->group(kCluster);
}

void AddLayoutFlags(CLI::App& app, CommonFlags& flags) {
    app.add_option("--tp", flags.job.tp, "Tensor-parallel ranks (default: all ranks)")
        ->check(CLI::Range(1, 1024))
        ->group(kCluster);
    app.add_option("--ep", flags.job.ep,
                   "Expert groups of the tensor ranks: each holds whole experts (default: 1, or as "
                   "many as the quantization needs)")
        ->check(CLI::Range(1, 1024))
        ->group(kCluster);
    app.add_option("--pp", flags.job.pp, "Pipeline stages (default: 1)")
        ->check(CLI::Range(1, 1024))
        ->group(kCluster);
    app.add_option("--transport", flags.cluster.transport,
                   "auto, shm, tcp, verbs or mpi (auto: shm within a host, verbs where RDMA is, "
                   "mpi between hosts of an mpirun)")
        ->check(CLI::IsMember(net::TransportNames()))
        ->group(kCluster);
    app.add_option("-t,--threads", flags.job.threads, "Threads per rank (default: its cores)")
        ->check(CLI::Range(1, 1024))
        ->group(kEngine);
    app.add_option("--trace", flags.trace_file, "Write a timeline that Perfetto opens")
        ->group(kEngine);
}

void AddEngineFlags(CLI::App& app, CommonFlags& flags) {
    app.add_option("--ctx", flags.job.ctx, "Tokens that the KV cache holds (default: as needed)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
        ->group(kEngine);
    app.add_option("--chunk", flags.job.chunk, "Most prompt tokens in one step (512)")
        ->check(CLI::Range(1, 65536))
        ->group(kEngine);
    app.add_option("--kv", flags.kv, "KV cache type: f16 (default), bf16, q8_0 or f32")
        ->group(kEngine);
    AddDevice(app, flags.job.device)->group(kEngine);
    app.add_flag("--reference", flags.job.reference,
                 "Reference kernels, float32 activations and KV cache: slow, for checking")
        ->group(kEngine);
    app.add_option("--overlap", flags.overlap,
                   "Compute one half of a prompt's rows while the other's sums are on the wire: "
                   "auto (where the wire is slow), off or on")
        ->check(CLI::IsMember({"auto", "off", "on"}))
        ->group(kEngine);
    app.add_option("--weights-from", flags.weights_from,
                   "0: only rank 0 reads the model; the others get their shards from it over the "
                   "network, and need no copy of the file")
        ->check(CLI::Range(0, 0))
        ->group(kEngine);
    app.add_flag("!--no-proof", flags.job.proof,
                 "Start without the proof that several ranks compute what one rank does")
        ->group(kEngine);
    app.add_flag("--verify", flags.job.verify,
                 "Compare checksums between tensor ranks at every step")
        ->group(kEngine);
    AddJson(app, flags.json);
}

void AddLora(CLI::App& app, CommonFlags& flags) {
    app.add_option("--lora", flags.lora,
                   "A LoRA adapter (adapter_config.json and adapter_model.safetensors) beside the "
                   "model, whose weights stay as they are")
        ->type_name("DIR")
        ->group(kEngine);
}

void AddRecoveryFlags(CLI::App& app, CommonFlags& flags) {
    app.add_option("--rejoin-ms", flags.cluster.rejoin_ms,
                   "When a rank is lost, go on once it is back: it is started again, or its "
                   "host's worker is called for so long (0: the job ends)")
        ->check(CLI::Range(0, 3'600'000))
        ->group(kCluster);
    app.add_flag("--elastic", flags.cluster.elastic,
                 "When a rank is lost (and not back within --rejoin-ms), go on with fewer")
        ->group(kCluster);
}

void AddDraftFlags(CLI::App& app, engine::DraftOptions& draft) {
    const char* group = "Drafts (several tokens a step)";
    app.add_flag("--lookup", draft.lookup,
                 "Guess that the text goes on as it did before: fast where the answer quotes or "
                 "edits its prompt, harmless elsewhere")
        ->group(group);
    app.add_option("--draft", draft.model,
                   "A small model with the same vocabulary, which guesses on rank 0 what MODEL "
                   "then checks in one step")
        ->type_name("MODEL")
        ->group(group);
    app.add_option("--draft-tokens", draft.tokens,
                   "Most tokens guessed for a step (--lookup: 16, --draft: 8); fewer, or none, "
                   "where guesses are seldom right")
        ->check(CLI::Range(int64_t{1}, engine::kMostDraftTokens))
        ->type_name("K")
        ->group(group);
    app.add_flag("--draft-always", draft.always,
                 "Guess that many at every step, whether it pays or not (to measure)")
        ->group(group);
}

Status ResolveHosts(CommonFlags& flags) {
    flags.cluster.hosts = Pieces(flags.hosts, ",");
    if (flags.hostfile.empty()) return {};
    if (!flags.cluster.hosts.empty()) {
        return MakeError(ErrorCode::kUsage, "--hosts and --hostfile exclude each other");
    }
    WEFT_ASSIGN(flags.cluster.hosts, ReadHostFile(flags.hostfile));
    return {};
}

void CatchStop(CommonFlags& flags) {
    // A launcher that ends all ranks because one is lost shall not hide which one it was.
    const bool launched = flags.cluster.launched != nullptr;
    flags.cluster.stop = CatchInterrupts(launched ? kLauncherGraceMs : 0);
}

Status Resolve(CommonFlags& flags) {
    WEFT_TRY(ResolveHosts(flags));
    const bool hosts = !flags.cluster.hosts.empty();
    const int layout = std::max(1, flags.job.tp) * std::max(1, flags.job.pp);
    // `--tp 2` alone means two local ranks.
    const bool launched = flags.cluster.launched != nullptr;
    if (!hosts && !launched && flags.cluster.local == 1) flags.cluster.local = layout;
    if (!flags.split.empty()) {
        WEFT_ASSIGN(flags.job.split, model::ParseShares(flags.split));
    }
    const auto dtype = DTypeOfName(flags.kv);
    const bool known = dtype && (*dtype == DType::kF16 || *dtype == DType::kBF16 ||
                                 *dtype == DType::kQ8_0 || *dtype == DType::kF32);
    if (!known) {
        return MakeError(ErrorCode::kUsage, "--kv {}: expected f16, bf16, q8_0 or f32", flags.kv);
    }
    flags.job.kv_dtype = *dtype;
    if (!flags.lora.empty()) flags.job.adapters = {{"lora", flags.lora}};
    WEFT_ASSIGN(flags.job.overlap, engine::ParseOverlap(flags.overlap));
    flags.job.feed = flags.weights_from == 0;
    WEFT_ASSIGN(flags.job.net_table, engine::ParseNetTable(flags.net_table));
    CatchStop(flags);
    flags.job.trace = !flags.trace_file.empty();
    return {};
}

int Fail(const Error& error, bool json) {
    if (json) {
        PrintJson({{"error", error.message}, {"exit_status", ExitStatus(error.code)}});
        std::fflush(stdout);
    }
    const char* kind = error.code == ErrorCode::kCancelled ? "" : "error: ";
    fmt::print(stderr, "weft: {}{}\n", kind, error.message);
    return ExitStatus(error.code);
}

}  // namespace weft::cli
