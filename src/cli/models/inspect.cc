// weft inspect: the content of a model file, the Program of a layout's rank, and the GPUs.

#include "base/printable.h"
#include "cli/commands.h"
#include "cli/models/devices.h"
#include "cluster/frame.h"
#include "model/model.h"
#include "program/cost.h"

namespace weft::cli {
namespace {

constexpr const char* kInspectFooter =
    "Examples:\n"
    "  weft inspect model.gguf\n"
    "  weft inspect model.gguf --program --tp 2\n"
    "  weft inspect synthetic:llama-3.1-8b --program --tp 2 --pp 2 --rank 3 --json\n"
    "  weft inspect --devices";

struct InspectFlags {
    std::string model, split;
    int tp = 1, pp = 1, ep = 0, rank = 0;
    bool program = false, devices = false, json = false, pull = false;
};

// One step of the cost walk.
struct CostRow {
    const char* name;
    int64_t tokens, context;
    program::OpCost cost;
};

struct Planned {
    std::string text;
    std::vector<std::string> notes;
    int64_t ops = 0;
    std::vector<CostRow> costs;
};

Result<Planned> Plan(const InspectFlags& flags, const model_files::ModelSource& source) {
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(source));
    std::vector<double> shares;
    if (!flags.split.empty()) {
        WEFT_ASSIGN(shares, model::ParseShares(flags.split));
    }
    const int ranks = flags.tp * flags.pp;
    if (flags.rank >= ranks) {
        return MakeError(ErrorCode::kUsage, "--rank {}: the layout has ranks 0 to {}", flags.rank,
                         ranks - 1);
    }
    WEFT_ASSIGN(const model::Layout layout,
                model::MakeLayout(ranks, flags.tp, flags.pp, shares, flags.ep));
    WEFT_ASSIGN(const model::ShardPlan plan, model::PlanShards(hyper, source, layout));
    model::BuildOptions options;
    if (hyper.encoder) options.outputs = model::Outputs::kHidden;
    WEFT_ASSIGN(
        const program::Program program,
        model::BuildProgram(hyper, plan.shards[static_cast<size_t>(flags.rank)], source, options));
    Planned planned{program::Print(program),
                    plan.notes,
                    static_cast<int64_t>(program.ops.size()),
                    {{"decode", 1, 512, {}}, {"prefill", 512, 0, {}}}};
    for (CostRow& row : planned.costs) {
        row.cost = program::Total(program::Cost(program, row.tokens, 1, row.context));
    }
    return planned;
}

Json PlanJson(const Planned& planned) {
    Json cost;
    for (const CostRow& row : planned.costs) {
        cost[row.name] = {{"tokens", row.tokens},
                          {"context", row.context},
                          {"flops", static_cast<int64_t>(row.cost.flops)},
                          {"read_bytes", row.cost.read_bytes},
                          {"written_bytes", row.cost.written_bytes},
                          {"wire_bytes", row.cost.wire_bytes}};
    }
    return {{"ops", planned.ops}, {"text", planned.text}, {"notes", planned.notes}, {"cost", cost}};
}

void PrintPlanned(const Planned& planned) {
    for (const std::string& note : planned.notes) PrintOut("# {}\n", Printable(note));
    PrintOut("{}\n", PrintableLines(planned.text));
    PrintOut("{:<10} {:>7} {:>8} {:>12} {:>12} {:>12} {:>12}\n", "step", "tokens", "context",
             "GFLOP", "MB read", "MB written", "MB on wire");
    for (const CostRow& row : planned.costs) {
        const auto mega = [](auto n) { return static_cast<double>(n) * 1e-6; };
        PrintOut("{:<10} {:>7} {:>8} {:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f}\n", row.name,
                 row.tokens, row.context, mega(row.cost.flops) * 1e-3, mega(row.cost.read_bytes),
                 mega(row.cost.written_bytes), mega(row.cost.wire_bytes));
    }
}

std::vector<int64_t> ShapeOf(const model_files::TensorInfo& tensor) {
    return {tensor.dims.begin(), tensor.dims.begin() + tensor.dim_count};
}

Json PlanJson(const model_files::ModelSource& source) {
    Json metadata = Json::array(), tensors = Json::array(), types = Json::object();
    for (const model_files::MetaEntry& entry : source.meta().entries()) {
        metadata.push_back({{"key", entry.key},
                            {"type", entry.TypeName()},
                            {"value", model_files::Metadata::Text(entry)}});
    }
    for (const model_files::TensorInfo& tensor : source.tensors()) {
        tensors.push_back({{"name", tensor.name},
                           {"type", Info(tensor.dtype).name},
                           {"shape", ShapeOf(tensor)},
                           {"bytes", tensor.bytes}});
    }
    for (const auto& [name, bytes] : source.BytesByType()) types[std::string(name)] = bytes;
    return {{"model", source.name()},       {"parameters", source.Parameters()},
            {"bytes", source.TotalBytes()}, {"bytes_by_type", types},
            {"metadata", metadata},         {"tensors", tensors}};
}

void PrintModel(const model_files::ModelSource& source) {
    PrintOut("{}: {:.2f} M parameters, {}", Printable(source.name()),
             static_cast<double>(source.Parameters()) * 1e-6, BytesText(source.TotalBytes()));
    for (const auto& [name, bytes] : source.BytesByType()) {
        PrintOut(", {} {}", name, BytesText(bytes));
    }
    PrintOut("\n\nmetadata ({}):\n", source.meta().entries().size());
    for (const model_files::MetaEntry& entry : source.meta().entries()) {
        PrintOut("  {:<42} {:<14} {}\n", Printable(entry.key), entry.TypeName(),
                 Printable(model_files::Metadata::Text(entry)));
    }
    PrintOut("\ntensors ({}):\n", source.tensors().size());
    for (const model_files::TensorInfo& tensor : source.tensors()) {
        std::string shape;
        for (int64_t dim : ShapeOf(tensor))
            fmt::format_to(std::back_inserter(shape), " {:>7}", dim);
        PrintOut("  {:<36} {:<5} {:<18} {:>12}\n", Printable(tensor.name), Info(tensor.dtype).name,
                 shape, tensor.bytes);
    }
}

void InspectDevices(bool json) {
    const gpu::Cards gpus = gpu::ListCards();
    if (json)
        PrintJson(
            {{"gpus", GpusJson(gpus)}, {"gpus_none", NoGpuText(gpus)}, {"shaders", ShadersJson()}});
    else
        PrintGpus(gpus);
}

Status RunInspectCommand(InspectFlags& flags) {
    if (flags.devices) {
        if (!flags.model.empty() || flags.program) {
            return MakeError(ErrorCode::kUsage,
                             "--devices shows the GPUs of this machine: it takes no MODEL");
        }
        InspectDevices(flags.json);
        return {};
    }
    if (flags.model.empty())
        return MakeError(ErrorCode::kUsage, "weft inspect: MODEL (or --devices) is missing");
    WEFT_ASSIGN(const auto source, model_files::OpenModel(flags.model));
    Planned planned;
    if (flags.program) {
        WEFT_ASSIGN(planned, Plan(flags, *source));
    }
    if (flags.json) {
        Json json = PlanJson(*source);
        if (flags.program) json["program"] = PlanJson(planned);
        PrintJson(json);
    } else if (flags.program) {
        PrintPlanned(planned);
    } else {
        PrintModel(*source);
    }
    return {};
}

}  // namespace

void AddInspect(const Command& app, int& status) {
    auto flags = std::make_shared<InspectFlags>();
    const Command command = app.AddCommand(
        "inspect", "Show metadata and tensors of a model, or the GPUs of this machine",
        kInspectFooter);
    AddModel(command, flags->model, flags->pull, false);
    command.AddFlag("--devices", flags->devices,
                    "Show the GPUs of this machine instead: driver, memory, features");
    const Command group = command.Group("Program");
    constexpr int kMost = cluster::kMostRanks;
    const Option program =
        group.AddFlag("--program", flags->program,
                      "Show the Program of one rank instead, and the cost of one step");
    group.AddNumber("--tp", flags->tp, 1, kMost, "Tensor-parallel ranks (1)").Needs(program);
    group.AddNumber("--ep", flags->ep, 1, kMost, "Expert-parallel groups of the tensor ranks")
        .Needs(program);
    group.AddNumber("--pp", flags->pp, 1, kMost, "Pipeline stages (1)").Needs(program);
    group.AddOption("--tensor-split", flags->split, "Shares of the ranks or stages, such as 3,2,1")
        .Needs(program);
    group.AddNumber("--rank", flags->rank, 0, 1 << 20, "Rank whose Program is shown (0)")
        .Needs(program);
    SetJsonCallback(command, flags, status, RunInspectCommand);
}

}  // namespace weft::cli
