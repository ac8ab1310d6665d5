#include "backend/placed/hand_over.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace weft::backend {

HandOver::HandOver(const program::PlacedProgram& placed, Compute compute)
    : run_of_device_(placed.run_of_device), compute_(std::move(compute)) {}

void HandOver::Box::Put(std::span<const std::byte> value) {
    if (count == values.size()) values.emplace_back();
    values[count++].assign(value.begin(), value.end());
}

void HandOver::Box::Take(std::span<std::byte> out) {
    WEFT_CHECK(taken < count && values[taken].size() == out.size());
    if (!out.empty()) std::memcpy(out.data(), values[taken].data(), out.size());
    ++taken;
}

Status HandOver::DeviceLinks::Send(std::span<const std::byte> data, int peer,
                                   const net::OpTag& tag) {
    if (peer != program::kHostPeer) return all_.ranks_->Send(data, peer, tag);
    // (The results of an earlier run may not have been received, as in a step without output rows.)
    const int32_t run = all_.run_of_device_[static_cast<size_t>(tag.index)];
    if (all_.sent_for_ != run) all_.to_host_.Clear();
    all_.sent_for_ = run;
    all_.to_host_.Put(data);
    return {};
}

Status HandOver::DeviceLinks::Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) {
    if (peer != program::kHostPeer) return all_.ranks_->Recv(data, peer, tag);
    const int32_t run = all_.run_of_device_[static_cast<size_t>(tag.index)];
    WEFT_CHECK(run >= 0);
    if (all_.made_for_ != run) {
        all_.to_device_.Clear();
        WEFT_TRY(all_.compute_(static_cast<size_t>(run), all_.host_));
        all_.made_for_ = run;
    }
    all_.to_device_.Take(data);
    return {};
}

Status HandOver::HostLinks::Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) {
    if (peer != program::kHostPeer) return all_.ranks_->Send(data, peer, tag);
    all_.to_device_.Put(data);
    return {};
}

Status HandOver::HostLinks::Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) {
    if (peer != program::kHostPeer) return all_.ranks_->Recv(data, peer, tag);
    all_.to_host_.Take(data);
    return {};
}

}  // namespace weft::backend
