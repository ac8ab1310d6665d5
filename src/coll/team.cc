#include "coll/team.h"

#include <cstring>
#include <type_traits>

#include "coll/sum.h"

namespace weft::coll {

Values Values::Segment(size_t parts, size_t index) const {
    const size_t line = 64 / value_bytes_;
    const size_t each = (size_ + parts - 1) / parts;
    const size_t whole = (each + line - 1) / line * line;
    return Sub(whole * index, whole);
}

void Values::CopyTo(Values out) const {
    if (out.at_ == at_) return;
    if (out.value_bytes_ == value_bytes_) {
        std::memcpy(out.at_, at_, size_ * value_bytes_);
    } else {
        RoundToFloat(static_cast<const double*>(at_), static_cast<float*>(out.at_), size_);
    }
}

Status Team::PostToOthers(std::span<const std::byte> payload) const {
    for (size_t step = 1; step < size(); step++) WEFT_TRY(Post(Ahead(step), payload));
    return {};
}

Status Team::Take(size_t place, std::span<std::byte> out) const {
    const std::byte* payload;
    WEFT_TRY(Await(place, out.size(), payload));
    if (!out.empty()) std::memcpy(out.data(), payload, out.size());
    return Release(place);
}

std::span<const std::byte> Team::OnWire(Values values) const {
    if (wire_ == WireType::kFull) return values.bytes();
    if (group_.on_wire.empty()) group_.on_wire.resize(2 * group_.message_bytes);
    group_.on_wire_half ^= 1;
    std::byte* const out = group_.on_wire.data() + group_.on_wire_half * group_.message_bytes;
    values.With([&](auto some) { Encode(wire_, some, out); });
    return {out, WireBytes(wire_, values.size(), value_bytes_)};
}

void Team::FromWire(std::span<const std::byte> bytes, Values out) const {
    if (bytes.data() == out.bytes().data()) return;
    out.With([&](auto some) { Decode(wire_, bytes.data(), some); });
}

Status Team::AwaitValues(size_t place, size_t count, std::span<const std::byte>& bytes) const {
    const size_t size = WireBytes(wire_, count, value_bytes_);
    const std::byte* payload;
    WEFT_TRY(Await(place, size, payload));
    bytes = {payload, size};
    return {};
}

Status Team::TakeValues(size_t place, Values out) const {
    std::span<const std::byte> bytes;
    WEFT_TRY(AwaitValues(place, out.size(), bytes));
    FromWire(bytes, out);
    return Release(place);
}

Status Team::Sum(Values sum, std::span<const std::byte> own) const {
    const std::span<const std::byte*> addends = this->addends();
    const size_t bytes = WireBytes(wire_, sum.size(), value_bytes_);
    for (size_t place = 0; place < size(); place++) {
        addends[place] = own.data();
        if (place != me_) WEFT_TRY(Await(place, bytes, addends[place]));
    }
    sum.With([&]<typename Out>(std::span<Out> out) {
        if constexpr (std::is_same_v<Out, float>) {
            if (value_bytes_ != sizeof(float)) return SumEncodedRounded(wire_, addends, out);
        }
        SumEncoded(wire_, addends, out);
    });
    for (size_t place = 0; place < size(); place++) {
        if (place != me_) WEFT_TRY(Release(place));
    }
    return {};
}

}  // namespace weft::coll
