// weft plan --measure: writes a machine file that describes the given ranks.
#include <fmt/format.h>

#include "base/file.h"
#include "cli/command_line/output_path.h"
#include "cli/plan/plan.h"
#include "net/fabric.h"

namespace weft::cli {

namespace {

// Whether the file is the machine file of a measured machine.
bool IsMeasured(const std::string& path) {
    const auto text = ReadTextFile(path, 1 << 20);
    if (!text.ok()) return false;
    const auto machine = plan::ParseMachine(*text, "machine", path);
    return machine.ok() && machine->measured.has_value();
}

}  // namespace

void AddMeasureOptions(const Command& command, PlanFlags& flags) {
    const char* group = "Measuring";
    const Option measure =
        command
            .AddFlag("--measure", flags.measure,
                     "Write a machine file of this machine, or of --local or --hosts")
            .Group(group);
    const auto add = [&](const char* name, auto& value, const char* help) {
        return command.AddOption(name, value, help).Needs(measure).Group(group);
    };
    plan::MeasureOptions& options = flags.measuring;
    add("-o,--out", flags.out, "Where to (default: standard output)");
    add("--types", options.types, "Types of weights to measure").Commas().OneEach();
    add("--measure-with", options.model, "The shape of which two layers run: synthetic:NAME")
        .ShowDefault();
    add("--measure-experts-with", options.experts,
        "The shape with experts of which two layers run; none: not measured")
        .ShowDefault();
    add("--kv-types", options.kv_types, "Types of the KV cache to measure, beside --kv-dtype")
        .Commas()
        .OneEach();
    add("--train-types", options.train_types,
        "Types to measure training in: bf16, f16, f32; none: not measured")
        .Commas()
        .OneEach();
    add("--measure-training-with", options.train_model,
        "The shape of which two layers are trained: synthetic:NAME")
        .ShowDefault();
    AddDevice(command, flags.common.job.device).Needs(measure).Group(group);
    add("-t,--threads", flags.common.job.threads,
        "Threads per rank (default: the cores of the rank)")
        .Range(1, 1024);
    add("--transport", flags.common.cluster.transport,
        "Transport between ranks: auto, shm, tcp, verbs or mpi")
        .OneOf(net::TransportNames());
    AddRankFlags(command, flags.common);
    // (--hosts also names the workers in the command of --explain.)
    for (const char* flag : {"--local", "--hostfile", "--cluster", "--expect-workers", "--listen"})
        command.Find(flag).Needs(measure);
}

Status MeasureHere(PlanFlags& flags) {
    flags.common.kv = flags.kv;
    WEFT_TRY(Resolve(flags.common));
    WEFT_TRY(CheckOutput({.name = "--out", .path = flags.out, .is_own = IsMeasured}, {}));
    plan::MeasureOptions options = flags.measuring;
    options.cluster = flags.common.cluster;
    options.job = flags.common.job;
    if (options.experts == "none") options.experts.clear();
    if (options.train_types == std::vector<std::string>{"none"}) options.train_types.clear();
    ProgressLine progress;
    WEFT_ASSIGN(plan::Machine machine, plan::MeasureMachine(options, [&](const std::string& what) {
                    progress.Show("measuring: " + what + " ...");
                }));
    progress.Clear();
    const std::string text = plan::MachineFileText(machine);
    if (flags.out.empty()) {
        PrintOut("{}", text);
        return {};
    }
    WEFT_TRY(WriteFile(flags.out, std::as_bytes(std::span(text))));
    const plan::Measured& measured = *machine.measured;
    if (flags.json) {
        PrintJson({{"file", flags.out},
                   {"devices", machine.devices},
                   {"bandwidth_bytes_s", machine.bandwidth.value},
                   {"compute_flops_s", machine.compute.value},
                   {"op_s", measured.op.value},
                   {"step_s", measured.step.value}});
        return {};
    }
    PrintOut("{}: {} a host, {:.1f} GB/s, {:.2f} TFLOP/s, {:.1f} us an op, {:.0f} us a step\n",
             flags.out,
             machine.devices == 1 ? "one rank" : fmt::format("{} ranks", machine.devices),
             machine.bandwidth.value * 1e-9, machine.compute.value * 1e-12, measured.op.value * 1e6,
             measured.step.value * 1e6);
    return {};
}

}  // namespace weft::cli
