#ifdef WEFT_VERBS

#include "net/verbs_objects.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/deadline.h"
#include "base/hash.h"

namespace weft::net {
namespace {

constexpr uint32_t kSendDepth = 256;
constexpr uint32_t kReceiveDepth = 256;
// Tried in this order: devices do not report their inline limit.
constexpr uint32_t kInlineSizes[] = {256, 220, 128, 64, 16, 0};
constexpr size_t kLeastStaging = size_t{64} << 10;
constexpr size_t kMostStaging = size_t{1} << 20;
constexpr size_t kPageBytes = 4096;
// 4.096 us x 2^14 = 67 ms, eight times: an unanswered packet becomes an error after half a second
// (some cards: two). Shorter than any usual --timeout-ms, longer than a switch's interruption.
constexpr uint8_t kAckTimeout = 14;
constexpr uint8_t kRetries = 7;
constexpr uint8_t kHops = 64;
// A port or an address that disappears may return after a moment.
constexpr int64_t kPatienceNs = 500'000'000;

struct DeviceList {
    int count = 0;
    ibv_device** devices = ibv_get_device_list(&count);
    DeviceList() = default;
    DeviceList(const DeviceList&) = delete;
    DeviceList& operator=(const DeviceList&) = delete;
    ~DeviceList() {
        if (devices != nullptr) ibv_free_device_list(devices);
    }
};

// Other hosts print this host's faults, so the text names the host.
std::string HostName() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

uint64_t MemlockLimit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return ~uint64_t{0};
    }
    return limit.rlim_cur;
}

}  // namespace

// ---- The device ---------------------------------------------------------------------------------

Result<std::shared_ptr<VerbsDevice>> VerbsDevice::Open(const std::string& name) {
    const DeviceList list;
    std::shared_ptr<VerbsDevice> device(new VerbsDevice);
    device->name_ = name;
    for (int i = 0; i < list.count; i++) {
        if (name != ibv_get_device_name(list.devices[i])) continue;
        errno = 0;
        device->context_.reset(ibv_open_device(list.devices[i]));
        if (device->context_ == nullptr) {
            return MakeError(
                errno == EACCES || errno == EPERM ? ErrorCode::kDenied : ErrorCode::kIo,
                "RDMA device {} can't be opened: {}. 'ls -l /dev/infiniband' shows the "
                "permissions.",
                name, std::strerror(errno));
        }
    }
    if (device->context_ == nullptr) {
        return MakeError(ErrorCode::kNotFound,
                         "RDMA device {} is in the kernel, but no user-space driver knows it. "
                         "Install ibverbs-providers; 'ibv_devices' must list it.",
                         name);
    }
    device->pd_.reset(ibv_alloc_pd(device->context()));
    if (device->pd_ == nullptr) {
        return MakeError(ErrorCode::kIo, "RDMA device {}: a protection domain: {}", name,
                         std::strerror(errno));
    }
    SetBlocking(device->context()->async_fd, false);
    device->node_ = device->context()->device->dev_path;
    if (!device->NodeExists()) device->node_ = "";
    return device;
}

bool VerbsDevice::NodeExists() const {
    return ::access(node_.c_str(), F_OK) == 0;
}

void VerbsDevice::TakeEvents() {
    ibv_async_event event;
    while (!gone_ && ibv_get_async_event(context(), &event) == 0) {
        // Completions report other events.
        if (event.event_type == IBV_EVENT_DEVICE_FATAL) gone_ = true;
        changes_++;
        ibv_ack_async_event(&event);
    }
    if (!gone_ && !node_.empty()) gone_ = !NodeExists();
}

// ---- Memory -------------------------------------------------------------------------------------

void RegisteredPages::Unmap::operator()(std::byte* data) const {
    ::munmap(data, bytes);
}

Result<RegisteredPages> RegisteredPages::Make(ibv_pd* pd, size_t bytes, int access) {
    bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return MakeError(ErrorCode::kOutOfMemory, "{} KiB for RDMA: {}", bytes >> 10,
                         std::strerror(errno));
    }
    Pages pages(static_cast<std::byte*>(data), Unmap{bytes});
    ::madvise(data, bytes, MADV_DONTFORK);
    MemoryRegion mr(ibv_reg_mr(pd, data, bytes, access));
    if (mr == nullptr) return RegistrationError(bytes, MemlockLimit(), errno);
    return RegisteredPages(std::move(pages), std::move(mr));
}

// ---- One end ------------------------------------------------------------------------------------

Result<std::unique_ptr<VerbsEndImpl>> VerbsEndImpl::Make(std::shared_ptr<VerbsDevice> device,
                                                         const RdmaPath& path,
                                                         size_t window_bytes) {
    std::unique_ptr<VerbsEndImpl> end(new VerbsEndImpl);
    end->device_ = std::move(device);
    end->path_ = path;
    end->window_bytes_ = window_bytes;
    end->name_ = fmt::format("{}:{}", path.device, path.port);
    if (!path.infiniband) end->name_ = fmt::format("{} {}", end->name_, GidText(path.gid));
    ibv_port_attr port{};
    const uint8_t number = static_cast<uint8_t>(path.port);
    if (const int error = ibv_query_port(end->device_->context(), number, &port); error != 0) {
        return end->Failed("the port's state", error);
    }
    WEFT_TRY(end->MakeMemory());
    WEFT_TRY(end->MakeQueues());
    WEFT_TRY(end->ToInit());
    VerbsAddress& address = end->address_;
    address.infiniband = path.infiniband;
    address.mtu = static_cast<uint8_t>(port.active_mtu);
    address.lid = path.infiniband ? port.lid : 0;
    address.qpn = end->qp()->qp_num;
    RandomBytes(std::as_writable_bytes(std::span(&address.psn, 1)));
    address.psn &= 0xffffff;
    address.rkey = end->region_->rkey();
    address.region = reinterpret_cast<uint64_t>(end->region_->data());
    address.gid = path.gid;
    if (!Plausible(address, window_bytes)) {
        return MakeError(ErrorCode::kNotFound,
                         "RDMA port {} has no address yet (LID {}). Does a subnet manager run?",
                         end->name_, port.lid);
    }
    return end;
}

Error VerbsEndImpl::Failed(const char* what, int error) const {
    return MakeError(ErrorCode::kIo, "RDMA port {}: {}: {}", name_, what, std::strerror(error));
}

Status VerbsEndImpl::MakeMemory() {
    WEFT_ASSIGN(RegisteredPages region,
                RegisteredPages::Make(device_->pd(), kVerbsWindowAt + window_bytes_,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    region_ = std::make_unique<RegisteredPages>(std::move(region));
    const size_t bytes = std::bit_ceil(std::clamp(window_bytes_, kLeastStaging, kMostStaging));
    WEFT_ASSIGN(RegisteredPages staging, RegisteredPages::Make(device_->pd(), bytes, 0));
    staging_ = std::make_unique<RegisteredPages>(std::move(staging));
    return {};
}

Status VerbsEndImpl::MakeQueues() {
    ibv_device_attr limits{};
    if (const int error = ibv_query_device(device_->context(), &limits); error != 0) {
        return Failed("its limits", error);
    }
    send_depth_ = std::min({kSendDepth, static_cast<uint32_t>(limits.max_qp_wr),
                            static_cast<uint32_t>(limits.max_cqe) - 1});
    receive_depth_ = std::min({kReceiveDepth, static_cast<uint32_t>(limits.max_qp_wr),
                               static_cast<uint32_t>(limits.max_cqe) - 1});
    // After an error every request completes, so the queues must hold all of them.
    const auto queue = [&](uint32_t depth) {
        return ibv_create_cq(device_->context(), static_cast<int>(depth) + 1, nullptr, nullptr, 0);
    };
    send_cq_.reset(queue(send_depth_));
    receive_cq_.reset(queue(receive_depth_));
    if (send_cq_ == nullptr || receive_cq_ == nullptr) return Failed("a completion queue", errno);
    for (const uint32_t inline_bytes : kInlineSizes) {
        ibv_qp_init_attr want{};
        want.send_cq = send_cq();
        want.recv_cq = receive_cq();
        want.qp_type = IBV_QPT_RC;
        want.cap.max_send_wr = send_depth_;
        want.cap.max_recv_wr = receive_depth_;
        want.cap.max_send_sge = 2;
        want.cap.max_recv_sge = 1;
        want.cap.max_inline_data = inline_bytes;
        qp_.reset(ibv_create_qp(device_->pd(), &want));
        max_inline_ = want.cap.max_inline_data;
        if (qp_ != nullptr) return {};
    }
    return Failed("a queue pair", errno);
}

Status VerbsEndImpl::ToInit() {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.pkey_index = 0;
    to.port_num = static_cast<uint8_t>(path_.port);
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    const int error = ibv_modify_qp(
        qp(), &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0) return Failed("a queue pair's start", error);
    return {};
}

Status VerbsEndImpl::Connect(const VerbsAddress& peer) {
    peer_ = peer;
    WEFT_TRY(PostReceives(receive_depth_));
    WEFT_TRY(ToReadyToReceive());
    return ToReadyToSend();
}

Status VerbsEndImpl::PostReceives(uint32_t count) {
    std::array<ibv_recv_wr, 16> chain{};
    while (count > 0) {
        const uint32_t now = std::min(count, static_cast<uint32_t>(chain.size()));
        for (uint32_t i = 0; i < now; i++) chain[i].next = i + 1 < now ? &chain[i + 1] : nullptr;
        ibv_recv_wr* bad = nullptr;
        const int error = ibv_post_recv(qp(), chain.data(), &bad);
        if (error != 0) return Failed("its receives", error);
        count -= now;
    }
    return {};
}

Status VerbsEndImpl::ToReadyToReceive() {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = static_cast<ibv_mtu>(std::min(address_.mtu, peer_.mtu));
    to.dest_qp_num = peer_.qpn;
    to.rq_psn = peer_.psn;
    to.max_dest_rd_atomic = 1;
    to.min_rnr_timer = 12;
    to.ah_attr.port_num = static_cast<uint8_t>(path_.port);
    to.ah_attr.dlid = peer_.lid;
    if (!path_.infiniband) {
        to.ah_attr.is_global = 1;
        std::memcpy(to.ah_attr.grh.dgid.raw, peer_.gid.data(), peer_.gid.size());
        to.ah_attr.grh.sgid_index = static_cast<uint8_t>(path_.gid_index);
        to.ah_attr.grh.hop_limit = kHops;
    }
    const int error =
        ibv_modify_qp(qp(), &to,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error == 0) return {};
    const std::string whom =
        path_.infiniband ? fmt::format("LID {}", peer_.lid) : GidText(peer_.gid);
    return MakeError(ErrorCode::kIo,
                     "RDMA port {} finds no way to {}: {}. Test it with '{}' from that "
                     "port. --transport tcp works without RDMA.",
                     name_, whom, std::strerror(error), path_.infiniband ? "ibping" : "ping");
}

Status VerbsEndImpl::ToReadyToSend() {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTS;
    to.timeout = kAckTimeout;
    to.retry_cnt = kRetries;
    to.rnr_retry = kRetries;
    to.sq_psn = address_.psn;
    to.max_rd_atomic = 1;
    const int error = ibv_modify_qp(qp(), &to,
                                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                        IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (error != 0) return Failed("a queue pair's last step", error);
    return {};
}

std::string VerbsEndImpl::Trouble() {
    device_->TakeEvents();
    if (device_->gone())
        return fmt::format("RDMA device {} of host {} is gone", path_.device, HostName());
    if (device_->changes() == seen_changes_) return "";
    const std::string trouble = TroubleNow();
    const int64_t now = NowNs();
    if (trouble.empty()) {
        seen_changes_ = device_->changes();
        trouble_since_ns_ = 0;
        return "";
    }
    if (trouble_since_ns_ == 0) trouble_since_ns_ = now;
    return now - trouble_since_ns_ >= kPatienceNs ? trouble : "";
}

std::string VerbsEndImpl::TroubleNow() {
    ibv_port_attr port{};
    const uint8_t number = static_cast<uint8_t>(path_.port);
    if (ibv_query_port(device_->context(), number, &port) != 0) {
        return fmt::format("RDMA port {} of host {} does not answer", name_, HostName());
    }
    if (port.state != IBV_PORT_ACTIVE) {
        return fmt::format("RDMA port {} of host {} is not active ({})", name_, HostName(),
                           ibv_port_state_str(port.state));
    }
    ibv_gid gid{};
    if (!path_.infiniband &&
        (ibv_query_gid(device_->context(), number, path_.gid_index, &gid) != 0 ||
         std::memcmp(gid.raw, path_.gid.data(), path_.gid.size()) != 0)) {
        return fmt::format(
            "RDMA port {} of host {} has lost its GID {} (index {}): was the "
            "address taken from the interface?",
            name_, HostName(), GidText(path_.gid), path_.gid_index);
    }
    return "";
}

// ---- verbs_end.h --------------------------------------------------------------------------------

bool VerbsBuilt() {
    return true;
}

VerbsDevices::VerbsDevices() = default;
VerbsDevices::~VerbsDevices() = default;

Result<std::unique_ptr<VerbsEnd>> VerbsDevices::MakeEnd(const RdmaPath& path, size_t window_bytes) {
    std::shared_ptr<VerbsDevice>& device = open_[path.device];
    if (device == nullptr) {
        WEFT_ASSIGN(device, VerbsDevice::Open(path.device));
    }
    WEFT_ASSIGN(auto end, VerbsEndImpl::Make(device, path, window_bytes));
    return std::unique_ptr<VerbsEnd>(std::move(end));
}

}  // namespace weft::net

#endif
