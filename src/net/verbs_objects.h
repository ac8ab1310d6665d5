// The libibverbs objects of a verbs link, with owners that release them.
//
// Only verbs_*.cc include this header, in a build with libibverbs. Members are declared in the
// order of construction, so destructors release them in reverse order: queue pair, completion
// queues, memory registrations, their memory, protection domain, device. Thread: as for Link.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "net/verbs_end.h"

namespace weft::net {

// Releases a libibverbs object. Errors are ignored, because no caller could handle them.
template <auto kRelease>
struct Releaser {
    template <typename T>
    void operator()(T* object) const {
        [[maybe_unused]] const int ignored = kRelease(object);
    }
};
using Context = std::unique_ptr<ibv_context, Releaser<&ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Releaser<&ibv_dealloc_pd>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Releaser<&ibv_destroy_cq>>;
using QueuePair = std::unique_ptr<ibv_qp, Releaser<&ibv_destroy_qp>>;
using MemoryRegion = std::unique_ptr<ibv_mr, Releaser<&ibv_dereg_mr>>;

// An open device and its events. The ends on a device share it.
class VerbsDevice {
  public:
    static Result<std::shared_ptr<VerbsDevice>> Open(const std::string& name);

    ibv_context* context() const { return context_.get(); }
    ibv_pd* pd() const { return pd_.get(); }
    const std::string& name() const { return name_; }
    // Reads the device's events, without blocking, and detects a removed device. Some drivers
    // report the removal in an event. Other drivers (Soft-RoCE) remove the device's node and wait
    // until all users close the device, which works until then.
    void TakeEvents();
    bool gone() const { return gone_; }
    // Number of port failures and address changes so far. When the number grows, an end checks its
    // own port and address.
    int64_t changes() const { return changes_; }

  private:
    VerbsDevice() = default;
    bool NodeExists() const;

    std::string name_;
    std::string node_;  // the device's node in sysfs; "": it did not exist at Open
    Context context_;
    ProtectionDomain pd_;
    bool gone_ = false;
    int64_t changes_ = 0;
};

// Zeroed pages that are registered with a device. A forked process does not inherit them.
class RegisteredPages {
  public:
    static Result<RegisteredPages> Make(ibv_pd* pd, size_t bytes, int access);
    std::byte* data() const { return static_cast<std::byte*>(mr_->addr); }
    size_t bytes() const { return mr_->length; }
    uint32_t lkey() const { return mr_->lkey; }
    uint32_t rkey() const { return mr_->rkey; }

  private:
    struct Unmap {
        size_t bytes = 0;
        void operator()(std::byte* data) const;
    };
    using Pages = std::unique_ptr<std::byte, Unmap>;
    RegisteredPages(Pages pages, MemoryRegion mr) : pages_(std::move(pages)), mr_(std::move(mr)) {}
    Pages pages_;
    MemoryRegion mr_;
};

class VerbsEndImpl final : public VerbsEnd {
  public:
    static Result<std::unique_ptr<VerbsEndImpl>> Make(std::shared_ptr<VerbsDevice> device,
                                                      const RdmaPath& path, size_t window_bytes);
    const VerbsAddress& address() const override { return address_; }
    const std::string& name() const override { return name_; }
    Status Connect(const VerbsAddress& peer) override;

    ibv_qp* qp() const { return qp_.get(); }
    ibv_cq* send_cq() const { return send_cq_.get(); }
    ibv_cq* receive_cq() const { return receive_cq_.get(); }
    const RegisteredPages& region() const { return *region_; }
    const RegisteredPages& staging() const { return *staging_; }
    size_t window_bytes() const { return window_bytes_; }
    uint32_t max_inline() const { return max_inline_; }
    uint32_t send_depth() const { return send_depth_; }
    // Number of empty receives, which Connect posts. Each WRITE with immediate data uses up one.
    uint32_t receive_depth() const { return receive_depth_; }
    Status PostReceives(uint32_t count);
    const VerbsAddress& peer() const { return peer_; }  // valid after Connect
    // A lasting fault of this host's device, port or address; "": no such fault. Not for the hot
    // path.
    std::string Trouble();

  private:
    VerbsEndImpl() = default;
    Status MakeMemory();
    Status MakeQueues();
    Status ToInit();
    Status ToReadyToReceive();
    Status ToReadyToSend();
    Error Failed(const char* what, int error) const;
    std::string TroubleNow();

    std::shared_ptr<VerbsDevice> device_;
    RdmaPath path_;
    std::string name_;
    size_t window_bytes_ = 0;
    uint32_t send_depth_ = 0;
    uint32_t receive_depth_ = 0;
    uint32_t max_inline_ = 0;
    std::unique_ptr<RegisteredPages> region_;
    std::unique_ptr<RegisteredPages> staging_;
    CompletionQueue send_cq_;
    CompletionQueue receive_cq_;
    QueuePair qp_;
    VerbsAddress address_;
    VerbsAddress peer_;
    int64_t seen_changes_ = 0;
    int64_t trouble_since_ns_ = 0;  // 0: no fault
};

}  // namespace weft::net
