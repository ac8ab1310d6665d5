#include "train/load_balance.h"

#include <utility>
#include <vector>

#include "model/moe.h"
#include "model_files/hf/json.h"

namespace weft::train {
namespace {

using program::Op;
using program::OpKind;
using program::ValueId;

bool AnyExperts(const model_files::ModelSource& source, int64_t layers) {
    for (int64_t layer = 0; layer < layers; ++layer) {
        if (model::HasExperts(source, layer)) return true;
    }
    return false;
}

}  // namespace

Result<ValueId> AddLoadBalance(program::Program& program, const model::Hyper& hyper,
                               const model::Shard& shard, const model_files::ModelSource& source) {
    if (!AnyExperts(source, hyper.layers)) {
        return MakeError(ErrorCode::kUsage, "--router-aux-loss: {} has no experts to be balanced",
                         source.name());
    }
    const program::Shape shape{2, hyper.moe.experts};
    const bool counted = AnyExperts(source, shard.layers.begin);  // by earlier stages
    const bool counts = AnyExperts(source, shard.layers.end);
    std::vector<Op> ops = std::exchange(program.ops, {});
    ValueId load = program::kNoValue;
    int number = 0;
    for (Op& op : ops) {
        program.ops.push_back(op);
        if (op.kind() == OpKind::kRecv && counted) {
            load = program.Emit(op.attributes, {}, "router_load.in", shape);
        } else if (op.kind() == OpKind::kRoute) {
            std::vector<ValueId> inputs = {op.inputs[0], op.outputs[0]};
            if (load != program::kNoValue) inputs.push_back(load);
            load = program.Emit(program::RouterLoad{}, std::move(inputs),
                                fmt::format("router_load.{}", number++), shape);
        } else if (op.kind() == OpKind::kSend && counts) {
            program.ops.push_back({op.attributes, {load}, {}});
        }
    }
    if (!shard.last_stage()) return program::kNoValue;
    return program.Emit(program::LoadBalance{hyper.moe.used}, {load}, "load_balance", {1});
}

Result<double> LoadBalanceOf(const model_files::ModelSource& source) {
    if (source.folder().empty()) return 0.0;
    WEFT_ASSIGN(const model_files::hf::Config config,
                model_files::hf::Config::Read(source.folder() + "/config.json"));
    WEFT_ASSIGN(const bool wanted, config.BoolOr({"output_router_logits"}, false));
    if (!wanted) return 0.0;
    return config.F64Or({"router_aux_loss_coef"}, 0.001);
}

}  // namespace weft::train
