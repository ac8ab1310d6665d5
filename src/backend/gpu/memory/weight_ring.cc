#include "backend/gpu/memory/weight_ring.h"

namespace weft::backend::on_gpu {

void WeightRing::Plan(ThreadTeam* readers) {
    team_ = readers;
    sources_.resize(buffers_.streamed().size());
    held_.fill(-1);
}

Status WeightRing::Bring(size_t weight) {
    const program::ValueId id = buffers_.streamed()[weight];
    const program::Value& value = program_.value(id);
    const WeightLayout& layout = buffers_.Layout(id);
    const Spot to = buffers_.At(id, 0);
    int64_t& held = held_[weight % Buffers::kRingPlaces];
    held = -1;
    const int parts = team_ == nullptr ? 1 : team_->size();
    std::vector<Status> statuses(static_cast<size_t>(parts));
    const auto load = [&](int part) {
        statuses[static_cast<size_t>(part)] = LoadMatrix(
            value, layout, *to.buffer, to.offset, sources_[weight], uploader_, {part, parts});
    };
    team_ == nullptr ? load(0) : team_->Run(load);
    for (Status& status : statuses) WEFT_TRY(std::move(status));
    held = static_cast<int64_t>(weight);
    return {};
}

}  // namespace weft::backend::on_gpu
