// Divides the Program of a rank between a device and the host's processor, which computes some of
// the ops while the device holds the rest (backend/placed/).
//
// A run is a list of consecutive ops of the host. In the device's Program, messages replace a run:
// a `send` to kHostPeer for each value that the run reads, and a `recv` from kHostPeer for each
// value that a later op of the device reads. Ops that the run does not depend on, such as shared
// experts, stand between the `send`s and the `recv`s. The device computes them while the host runs.
// In the host's Program, a run begins with a
// `recv` for each of these `send`s, and ends with a `send` for each of these `recv`s. So a device
// sends values to the host as it sends them to another rank.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "program/model_chunk.h"
#include "program/program.h"

namespace weft::program {

// The peer of messages between a device and the host's processor.
inline constexpr int kHostPeer = -1;
bool IsToHost(const Op& op);    // such a send, in the device's Program
bool IsFromHost(const Op& op);  // such a recv

// The ops that run on the host's processor.
struct HostOps {
    static constexpr int64_t kAllLayers = std::numeric_limits<int32_t>::max();
    int64_t expert_layers = 0;  // the experts of the first so many layers
    int64_t layers = 0;         // the first so many layers as a whole
    // Experts of further layers, until the rest fits into the device's memory.
    bool fill = false;

    // Least rows of a step whose experts the device computes itself, with weights that it reads
    // from the host; 0: none is; -1: measured.
    int64_t stream_rows = 0;

    bool any() const { return expert_layers > 0 || layers > 0 || fill; }
    bool operator==(const HostOps&) const = default;
    // Whether a weight of the model's file with this name ("blk.3.ffn_up_exps.weight") is read by
    // ops of the host only.
    bool HasWeight(std::string_view name) const;
};

// By op: whether it runs on the host. Transfers, and ops that belong to no layer, do not.
std::vector<bool> ChooseHostOps(const Program& program, const HostOps& host_ops);

// One more than the last layer with experts; 0: no layer has any.
int64_t ExpertLayersEnd(const Program& program);

// The steps that run an op of the device's Program. For each expert op of the host, the device's
// Program also has an op that reads its weights from the host: a step either sends values to the
// host (kHanded: the messages), or the device computes them itself (kStreamed).
enum class Way : uint8_t { kAlways, kHanded, kStreamed };

// The stacks of matrices that one kStreamed op reads and no other op, in order of use. ways: by op;
// may be empty.
std::vector<ValueId> StreamedWeights(const Program& program, std::span<const Way> ways);

struct PlacedProgram {
    Program device, host;
    std::vector<Way> ways;      // by op of `device`; empty: no op is streamed
    std::vector<OpRange> runs;  // ops of `host`
    // By ValueId of the whole Program: the value in the device's and in the host's Program;
    // kNoValue: that Program does not have it.
    std::vector<ValueId> on_device, on_host;
    // By ValueId of the whole Program: whether the host's Program has the value's latest contents
    // after a step. False for weights.
    std::vector<bool> is_of_host;
    // By ValueId of the whole Program: whether streamed ops compute the value.
    std::vector<bool> is_streamed;
    // By op of the whole Program, and for its end: the first op of `device` for it or for a later
    // op; -1: no range of ops may begin or end here, because it is in the midst of a run.
    std::vector<int64_t> device_ops;
    // By op of `device` and of `host`: the op of the whole Program; -1: a message between both.
    std::vector<int32_t> op_of_device, op_of_host;
    // By op of `device`: the run that a message to or from kHostPeer belongs to; -1: other ops.
    std::vector<int32_t> run_of_device;
};

// keep: values that the caller reads after a step. streams: the device's Program also has those ops
// of the host that compute with experts and whose operands the device has. Errors: kUnsupported (a
// KV cache or a recurrent state is used on both sides).
Result<PlacedProgram> PlaceOps(const Program& program, const std::vector<bool>& on_host,
                               std::span<const ValueId> keep, bool streams = false);

}  // namespace weft::program
