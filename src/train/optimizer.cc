#include "train/optimizer.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/cpu/shares.h"
#include "tensor/half_rows.h"

namespace weft::train {
namespace {

using program::Unit;

// Sums over many elements go in blocks of so many, each by one thread, and then in order.
constexpr int64_t kBlock = 1 << 16;

net::OpTag Tag(const char* op, int64_t step) {
    net::OpTag tag;
    tag.op = op;
    tag.step = step;
    return tag;
}

double SquaresOf(std::span<const std::byte> bytes, DType dtype) {
    double sum = 0;
    if (dtype == DType::kF32) {
        const auto* x = reinterpret_cast<const float*>(bytes.data());
        for (size_t i = 0; i < bytes.size() / 4; ++i) sum += double{x[i]} * double{x[i]};
    } else {
        float block[1024];
        for (size_t at = 0; at < bytes.size(); at += 2 * std::size(block)) {
            const std::span<float> x(block, std::min(bytes.size() - at, 2 * std::size(block)) / 2);
            WidenRow(dtype, bytes.data() + at, x);
            for (const float value : x) sum += double{value} * double{value};
        }
    }
    return sum;
}

std::vector<size_t> BytesOfParts(const Unit& unit) {
    std::vector<size_t> bytes;
    for (const int64_t part : unit.parts) {
        bytes.push_back(static_cast<size_t>(RowBytes(unit.dtype, part)));
    }
    return bytes;
}

// All of a unit that every rank holds, cut evenly for the sum over ranks.
std::vector<int64_t> EvenParts(int64_t elements, int ranks) {
    std::vector<int64_t> parts;
    for (int64_t r = 0; r < ranks; ++r) {
        parts.push_back(elements * (r + 1) / ranks - elements * r / ranks);
    }
    return parts;
}

}  // namespace

Status Optimizer::ReduceGradients() {
    for (const OwnPart& part : state_.parts()) {
        if (groups_.data != nullptr) WEFT_TRY(ReduceUnit(*part.unit));
        if (groups_.tied != nullptr) WEFT_TRY(JoinTied(*part.unit));
    }
    return {};
}

Status Optimizer::ReduceUnit(const Unit& unit) {
    if (unit.gradients_shared) return {};  // the passes did
    const net::OpTag tag = Tag("gradients", steps_ + 1);
    const std::span<std::byte> all = state_.GradientBytes(unit);
    if (!unit.whole) {
        return backend::ReduceScatterInto(groups_.data.get(), all, unit.gradient_dtype, unit.parts,
                                          unit.own_begin, state_.OwnGradientBytes(unit), false,
                                          tag);
    }
    if (unit.gradient_dtype == DType::kF32) {
        auto* floats = reinterpret_cast<float*>(all.data());
        return groups_.data->AllReduce(std::span(floats, all.size() / sizeof(float)), tag);
    }
    const std::vector<int64_t> parts = EvenParts(unit.elements, groups_.data->size());
    const int64_t begin =
        std::accumulate(parts.begin(), parts.begin() + groups_.data->rank(), int64_t{0});
    const int64_t count = parts[static_cast<size_t>(groups_.data->rank())];
    const auto own = all.subspan(static_cast<size_t>(RowBytes(unit.gradient_dtype, begin)),
                                 static_cast<size_t>(RowBytes(unit.gradient_dtype, count)));
    WEFT_TRY(backend::ReduceScatterInto(groups_.data.get(), all, unit.gradient_dtype, parts, begin,
                                        own, false, tag));
    std::vector<size_t> bytes;
    for (const int64_t part : parts) {
        bytes.push_back(static_cast<size_t>(RowBytes(unit.gradient_dtype, part)));
    }
    return groups_.data->AllGather(all, bytes, tag);
}

// A tensor of two stages (tied embeddings) is alone in its unit, so that own parts match.
Status Optimizer::JoinTied(const Unit& unit) {
    if (!unit.alone) return {};
    const std::span<std::byte> own = state_.OwnGradientBytes(unit);
    const net::OpTag tag = Tag("tied", steps_ + 1);
    if (unit.gradient_dtype == DType::kF32) {
        auto* floats = reinterpret_cast<float*>(own.data());
        return groups_.tied->AllReduce(std::span(floats, own.size() / sizeof(float)), tag);
    }
    const size_t count = own.size() / 2;
    std::vector<float> block(std::min(count, static_cast<size_t>(kBlock) * 16));
    for (size_t begin = 0; begin < count; begin += block.size()) {
        const auto sums = std::span(block).first(std::min(block.size(), count - begin));
        WidenRow(unit.gradient_dtype, own.data() + 2 * begin, sums);
        WEFT_TRY(groups_.tied->AllReduce(sums, tag));
        NarrowRow(unit.gradient_dtype, sums, own.data() + 2 * begin);
    }
    return {};
}

Result<double> Optimizer::SumSquares() {
    struct Block {
        std::span<const std::byte> bytes;
        DType dtype;
    };
    std::vector<Block> blocks;
    for (const OwnPart& part : state_.parts()) {
        const Unit& unit = *part.unit;
        const std::span<const std::byte> own = state_.OwnGradientBytes(unit);
        for (const ElementRange& sole : part.sole) {
            for (int64_t at = sole.begin; at < sole.end; at += kBlock) {
                const int64_t count = std::min(kBlock, sole.end - at);
                blocks.push_back(
                    {own.subspan(
                         static_cast<size_t>(RowBytes(unit.gradient_dtype, at - unit.own_begin)),
                         static_cast<size_t>(RowBytes(unit.gradient_dtype, count))),
                     unit.gradient_dtype});
            }
        }
    }
    std::vector<double> sums(blocks.size());
    training_.InParts([&](int part, int parts) {
        for (auto b = static_cast<size_t>(part); b < sums.size(); b += static_cast<size_t>(parts)) {
            sums[b] = SquaresOf(blocks[b].bytes, blocks[b].dtype);
        }
    });
    double total = std::accumulate(sums.begin(), sums.end(), 0.0);
    if (groups_.world != nullptr) {
        WEFT_TRY(groups_.world->AllReduce(std::span<double>(&total, 1), Tag("norm", steps_ + 1)));
    }
    return total;
}

// Where others read this rank's part, too.
Status Optimizer::Publish(const Unit& unit) {
    if (groups_.data == nullptr || unit.whole || unit.weights_shared) return {};
    return groups_.data->AllGather(state_.WeightBytes(unit), BytesOfParts(unit),
                                   Tag("weights", steps_));
}

Status Optimizer::Update(double learning_rate, double gradient_scale) {
    const UpdateStep step{++steps_, learning_rate, gradient_scale};
    WEFT_TRY(rule_.Prepare(step));
    for (size_t i = 0; i < state_.parts().size(); ++i) {
        rule_.UpdatePart(i, step);
        WEFT_TRY(Publish(*state_.parts()[i].unit));
    }
    return {};
}

}  // namespace weft::train
