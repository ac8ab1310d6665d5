#include "train/export_source.h"

#include <algorithm>
#include <string_view>

namespace weft::train {
namespace {

const net::OpTag kTag{"export"};

struct Request {
    int64_t tensor = -1;  // index in the source's list; -1: end
    int64_t row = 0, rows = 0, col = 0, cols = 0;
};

// A tensor's block among the elements of a unit; a vector is one row.
Holding BlockOf(const program::Value& weight) {
    Holding block = HoldingOf(weight);
    if (weight.shape.rank > 1) return block;
    return {block.tensor, 0, 1, block.row, block.rows};
}

// Copies elements of a block, from element `begin` on, to their positions in the requested block.
void CopyRows(std::span<const float> values, int64_t begin, const Holding& block,
              const Request& wanted, std::span<float> out) {
    const auto end = begin + std::ssize(values);
    for (int64_t at = begin; at < end;) {
        const int64_t row = block.row + at / block.cols - wanted.row;
        const int64_t col = block.col + at % block.cols;
        const int64_t count = std::min(end - at, block.cols - at % block.cols);
        const int64_t from = std::max(col, wanted.col);
        const int64_t to = std::min(col + count, wanted.col + wanted.cols);
        if (row >= 0 && row < wanted.rows && from < to) {
            std::copy_n(values.begin() + (at - begin + from - col), to - from,
                        out.begin() + (row * wanted.cols + from - wanted.col));
        }
        at += count;
    }
}

// Adds this rank's own elements of the requested block to `out`.
Status AddOwn(const TrainState& state, const OwnMembers& members, const Request& wanted,
              std::span<float> out) {
    std::vector<float> own;
    for (const auto& [part, member] : members) {
        const Holding block = BlockOf(member->weight);
        const int64_t elements = block.rows * block.cols;
        // Elements of the requested rows, with all columns.
        const int64_t first = member->begin + (wanted.row - block.row) * block.cols;
        const ElementRange held{
            std::max(member->begin, first),
            std::min(first + wanted.rows * block.cols, member->begin + elements)};
        if (held.begin >= held.end) continue;
        for (const ElementRange& sole : part->sole) {
            const int64_t begin = std::max(sole.begin, held.begin);
            const int64_t end = std::min(sole.end, held.end);
            if (begin >= end) continue;
            own.resize(static_cast<size_t>(end - begin));
            WEFT_TRY(state.ReadWeights(*part, begin - part->unit->own_begin, own));
            CopyRows(own, begin - member->begin, block, wanted, out);
        }
    }
    return {};
}

Status SumOwn(const TrainState& state, const MembersByTensor& members, coll::Comm* world,
              const Request& wanted, std::span<float> out) {
    std::ranges::fill(out, 0.0f);
    const auto own = members.find(wanted.tensor);
    if (own != members.end()) WEFT_TRY(AddOwn(state, own->second, wanted, out));
    return world == nullptr ? Status() : world->AllReduce(out, kTag);
}

MembersByTensor MembersOf(const model_files::ModelSource& source, const TrainState& state) {
    std::map<std::string_view, int64_t> numbers;
    for (size_t i = 0; i < source.tensors().size(); ++i) {
        numbers.emplace(source.tensors()[i].name, static_cast<int64_t>(i));
    }
    MembersByTensor members;
    for (const OwnPart& part : state.parts()) {
        for (const program::FlatBucket::Member& member : part.unit->members) {
            const auto number = numbers.find(member.weight.slice.name);
            if (number != numbers.end()) members[number->second].emplace_back(&part, &member);
        }
    }
    return members;
}

Status Tell(coll::Comm& world, Request& request) {
    return world.Broadcast(std::as_writable_bytes(std::span(&request, 1)), 0, kTag);
}

}  // namespace

ExportSource::ExportSource(const model_files::ModelSource& source, const TrainState& state,
                           coll::Comm* world)
    : SourceOver(source), state_(state), members_(MembersOf(source, state)), world_(world) {
    for (size_t i = 0; i < tensors().size(); ++i) {
        if (state.trained_tensors().contains(tensors()[i].name)) ChangeToF32(i);
    }
}

ExportSource::~ExportSource() {
    Request end;
    // (After a link failure, the other ranks notice it, too.)
    if (world_ != nullptr) (void)Tell(*world_, end).ok();
}

Status ExportSource::ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                             int64_t col_count, std::span<std::byte> out,
                             uint64_t* bytes_read) const {
    const std::scoped_lock lock(mutex_);
    Request wanted{static_cast<int64_t>(index), row_begin, row_count, col_begin, col_count};
    const std::span<float> floats(reinterpret_cast<float*>(out.data()),
                                  static_cast<size_t>(row_count * col_count));
    if (world_ != nullptr) WEFT_TRY(Tell(*world_, wanted));
    WEFT_TRY(SumOwn(state_, members_, world_, wanted, floats));
    if (bytes_read != nullptr) *bytes_read += out.size();
    return {};
}

Result<std::string> ExportSource::Fingerprint() const {
    return MakeError(ErrorCode::kUnsupported, "a model in training has no fingerprint");
}

Status ServeExport(const model_files::ModelSource& source, const TrainState& state,
                   coll::Comm& world) {
    const MembersByTensor members = MembersOf(source, state);
    std::vector<float> values;
    while (true) {
        Request wanted;
        WEFT_TRY(Tell(world, wanted));
        if (wanted.tensor < 0) return {};
        values.resize(static_cast<size_t>(wanted.rows * wanted.cols));
        WEFT_TRY(SumOwn(state, members, &world, wanted, values));
    }
}

}  // namespace weft::train
