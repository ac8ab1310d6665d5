#include "model/draft_head.h"

#include <algorithm>

#include "model/builder.h"

namespace weft::model {

using program::kOutputs;
using program::kTokens;
using program::ValueId;

namespace {

constexpr const char* kState = "draft.state";
constexpr const char* kMade = "draft.made";
constexpr const char* kLogits = "draft.logits";

}  // namespace

DraftHeadOps DraftHeadOf(const program::Program& program) {
    DraftHeadOps head;
    head.step = {0, program.ops.size()};
    head.state = program.Find(kState);
    head.made = program.Find(kMade);
    head.logits = program.Find(kLogits);
    const bool computes = head.state != program::kNoValue;
    const ValueId begin_value = computes ? head.state : head.logits;
    const auto begin = std::ranges::find_if(program.ops, [&](const program::Op& op) {
        return std::ranges::find(op.outputs, begin_value) != op.outputs.end();
    });
    head.step.end = static_cast<size_t>(begin - program.ops.begin());
    head.first = {head.step.end, program.ops.size()};
    head.next = {head.step.end + (computes ? 1 : 0), program.ops.size()};
    return head;
}

ValueId Builder::BeginDraftHead(ValueId x) {
    const int64_t columns = hyper_.hidden;
    const Slice vector{{0, columns}, {}, columns, 0};
    layer_ = -1;
    const ValueId norm = Weight(OutputNorm() + ".weight", vector);
    const ValueId state = program_.Emit(NormOf(columns), {x, norm}, kState, {kTokens, columns});
    const std::string own_table = fmt::format("blk.{}.nextn.embed_tokens", hyper_.layers);
    const bool own = source_.FindTensor(own_table + ".weight") != nullptr;
    const ValueId embedded = Embedded(own ? own_table : "token_embd", "draft.embedded");
    BeginLayer(hyper_.layers);
    own_layers_ = std::exchange(shard_.layers, {layer_, layer_ + 1});
    const ValueId token = Norm(embedded, "nextn.enorm", columns);
    const ValueId before = Norm(state, "nextn.hnorm", columns);
    const std::string tensor = Tensor("nextn.eh_proj.weight");
    const model_files::TensorInfo* info = source_.FindTensor(tensor);
    if (info != nullptr && columns % Info(info->dtype).block_elements != 0) {
        Fail(MakeError(ErrorCode::kUnsupported,
                       "{}: tensor {} of type {} has blocks that span both of its halves of {} "
                       "columns",
                       source_.name(), tensor, Info(info->dtype).name, columns));
        return state;
    }
    const auto half = [&](ValueId of, int64_t begin, const char* name) {
        const Slice slice{{0, columns}, {begin, begin + columns}, columns, 2 * columns};
        const ValueId weight = Weight(tensor, slice, Tensor(name));
        return program_.Emit(program::MatMul{}, {of, weight}, Local(name), {kTokens, columns});
    };
    return Add(half(token, 0, "nextn.e_proj"), half(before, columns, "nextn.h_proj"));
}

void Builder::EndDraftHead(ValueId x) {
    const int64_t columns = hyper_.hidden;
    const bool own = Has("nextn.shared_head_norm.weight");
    const std::string norm = own ? Tensor("nextn.shared_head_norm") : OutputNorm();
    const bool own_output = Has("nextn.shared_head_head.weight");
    const std::string output = own_output ? Tensor("nextn.shared_head_head") : OutputMatrix();
    shard_.layers = own_layers_;
    layer_ = -1;
    x = program_.Emit(program::SelectRows{}, {x, output_rows_}, "draft.selected",
                      {kOutputs, columns});
    const ValueId weight = Weight(norm + ".weight", {{0, columns}, {}, columns, 0});
    x = program_.Emit(NormOf(columns), {x, weight}, kMade, {kOutputs, columns});
    ToLogits(x, output, kLogits);
}

void Builder::RecvDraftHead() {
    if (shard_.rank != 0) return;
    const int sender = (shard_.layout.pp - 1) * shard_.layout.tp;
    program_.Emit(program::Recv{sender}, {}, kLogits, {kOutputs, hyper_.vocab});
}

}  // namespace weft::model
