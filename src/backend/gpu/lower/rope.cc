// RoPE, and its tables of angles.
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"
#include "base/check.h"
#include "base/hash.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::ValueId;

struct RopeArgs {
    uint64_t x = 0, y = 0, positions = 0, fine = 0, coarse = 0;
    uint32_t rows = 0, heads = 0, head_dim = 0, pairs = 0;
    float sign_of_sine = 1;
    uint32_t first = 0, behind = 0;
};
// rope.comp: positions of the fine table. The coarse table has at least kLeastCoarse entries;
// longer contexts double it.
constexpr int64_t kFinePositions = 256, kLeastCoarse = 512;

// Cosines and sines, times `magnitude`, of positions 0, step, 2 step, ... Each is one rotation
// after the last, in float64, with an error below count * 2^-52.
std::vector<float> AnglesOf(const std::vector<float>& inverse_frequency, int64_t count,
                            int64_t step, float magnitude) {
    const size_t pairs = inverse_frequency.size();
    std::vector<float> table(static_cast<size_t>(count) * pairs * 2);
    for (size_t pair = 0; pair < pairs; ++pair) {
        const double angle =
            static_cast<double>(step) * static_cast<double>(inverse_frequency[pair]);
        const std::complex<double> turn(std::cos(angle), std::sin(angle));
        std::complex<double> at(static_cast<double>(magnitude), 0);
        for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
            table[(i * pairs + pair) * 2] = static_cast<float>(at.real());
            table[(i * pairs + pair) * 2 + 1] = static_cast<float>(at.imag());
            at = {at.real() * turn.real() - at.imag() * turn.imag(),
                  at.real() * turn.imag() + at.imag() * turn.real()};
        }
    }
    return table;
}

}  // namespace

Result<AngleTables> PlaceAngles(Emitter& e, const program::Rope& a) {
    int64_t coarse = kLeastCoarse;
    while (coarse * kFinePositions < e.shape().positions) coarse *= 2;
    const uint64_t key = Checksum64(std::as_bytes(std::span(a.inverse_frequency)),
                                    std::bit_cast<uint32_t>(a.magnitude));
    const auto place = [&](std::string name, int64_t count, int64_t step, float magnitude) {
        name = fmt::format("{} {} {}", name, key, count);
        const uint64_t bytes =
            static_cast<uint64_t>(count) * 2 * a.inverse_frequency.size() * sizeof(float);
        return e.Constant(name, bytes, [&, count, step, magnitude](std::span<std::byte> out) {
            const std::vector<float> table = AnglesOf(a.inverse_frequency, count, step, magnitude);
            WEFT_CHECK(table.size() * sizeof(float) == out.size());
            std::memcpy(out.data(), table.data(), out.size());
        });
    };
    AngleTables tables;
    WEFT_ASSIGN(tables.fine, place("rope fine", kFinePositions, 1, 1.0f));
    WEFT_ASSIGN(tables.coarse, place("rope coarse", coarse, kFinePositions, a.magnitude));
    return tables;
}

Status Lower(Emitter& e, const Op& op, const program::Rope& a) {
    const ValueId y = op.outputs[0];
    const int64_t pairs = a.rotary_dim / 2, heads = e.Cols(y) / a.head_dim;
    WEFT_ASSIGN(const AngleTables angles, PlaceAngles(e, a));
    Operands io(e);
    io.SetRows(a.head_dim);
    io.SetRows(a.neighbours ? a.rotary_dim : pairs);
    if (a.last) io.SetRows(1);  // the kernel for single columns
    RopeArgs args;
    args.x = io.Reads(op.inputs[0], 0);
    args.y = io.Writes(y, 1);
    args.positions = e.tables().positions;
    args.fine = io.Reads(angles.fine);
    args.coarse = io.Reads(angles.coarse);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, y));
    args.heads = static_cast<uint32_t>(heads);
    args.head_dim = static_cast<uint32_t>(a.head_dim);
    args.pairs = static_cast<uint32_t>(pairs);
    args.sign_of_sine = a.sign;
    args.first = static_cast<uint32_t>(a.last ? a.head_dim - a.rotary_dim : 0);
    args.behind = static_cast<uint32_t>(a.behind);
    const int64_t dims = io.wide() && a.neighbours ? a.head_dim : a.head_dim - pairs;
    const int64_t units = heads * (io.wide() ? dims / 4 : dims);
    return io.Run("rope", {kWalkGroup, io.types(), io.wide(), a.neighbours}, args,
                  {RowGroups(args.rows), CeilDiv(units, kWalkGroup), 1});
}

}  // namespace weft::backend::on_gpu
