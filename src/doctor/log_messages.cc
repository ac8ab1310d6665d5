#include "doctor/log_messages.h"

#include <algorithm>

#include "doctor/kernel_log.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

bool SaysWords(std::string_view lower, std::string_view words) {
    for (std::string_view part : Split(words, '*')) {
        part = Trim(part);
        const size_t at = lower.find(part);
        if (at == lower.npos) return false;
        lower.remove_prefix(at + part.size());
    }
    return true;
}

bool HasDriver(std::string_view lower, std::string_view drivers) {
    if (drivers.empty()) return true;
    if (drivers == "net") return !NetworkDriverIn(lower).empty();
    if (drivers == "gpu") return !GpuDriverIn(lower).empty();
    const auto list = Words(drivers);
    const std::string_view net = NetworkDriverIn(lower), gpu = GpuDriverIn(lower);
    return std::ranges::find(list, net) != list.end() || std::ranges::find(list, gpu) != list.end();
}

}  // namespace

bool Says(std::string_view lower, const LogMessage& message) {
    return SaysWords(lower, message.words) && HasDriver(lower, message.drivers);
}

const LogMessage* FindMessage(std::string_view lower, std::span<const LogMessage> messages) {
    const auto found = std::ranges::find_if(
        messages, [&](const LogMessage& message) { return Says(lower, message); });
    return found == messages.end() ? nullptr : &*found;
}

std::string_view LogVocabulary() {
    return
        // drivers that are no card's of ours, and names that drivers give themselves
        "<mlx4_ib> pcieport pciehp mce thermal amdxdna nvrm nvidia kernel netdev watchdog "
        "r8152 ax88179_178a cdc_ncm cdc_ether asix e1000 virtio_net vmxnet3 infiniband nic "
        // cards
        "dmfs high rate steer mode disabled performance optimized steering default dynamic hybrid "
        "not supported static for limited rule configuration gb/s available pcie bandwidth by gt/s "
        "link at capable of with x1 x2 x4 x8 x16 x32 slot transmit queue timed out port module "
        "event error event[error]: sensors bit set temperature plugged unplugged bus stuck "
        "shorted eeprom/retry eeprom timeout unknown identifier status long range cable/module "
        "miss count reached device package could be loaded functionality will full half duplex "
        "speed mbps gbps down up detected synd severity error: warning: critical firmware command "
        "threshold: celsius degrees; current temperature: msg vsi_num: multiple reset "
        "nic is flow control: rx/tx none requested negotiated fec: "
        // PCI Express
        "aer: aer severity=corrected severity=correctable severity=uncorrected "
        "severity=uncorrectable type=physical type=data type=transaction corrected correctable "
        "uncorrected uncorrectable (non-fatal) (non-fatal), (fatal) (fatal), fatal non-fatal error "
        "received severity type physical data link transaction layer layer, receiver transmitter "
        "requester completer id rxerr badtlp baddllp rollover lost message from first agent "
        // GPUs
        "msg remove_queue add_queue suspend resume msg=remove_queue msg=add_queue msg=suspend "
        "msg=resume msg=misc ring timeout, timeout signaled emitted seq gfx_0.0.0 gfx_0.1.0 "
        "gfx_low gfx_high gfx comp_1.0.0 comp_1.1.0 sdma0 sdma1 vcn_unified_0 drm [gfxhub] "
        "[mmhub] page fault vmid pasid over range(sw ctf) *error* src_id xid "
        // memory and processor
        "out memory killed process machine check events logged corrected action required deferred "
        "error, bank cpu core package temperature above threshold, threshold cpu clock throttled "
        "total events = stuck pid comm task blocked seconds smp preempt nopti oops tainted "
        "call trace bug: unable handle pointer dereference, general protection fault: rip: "
        "avc: denied comm=\"opensm\" path=\"/var/log/opensm.log\" permissive=0 permissive=1 "
        // what joins them
        "ms s a an and or in from it the this to was were will be is on no by of";
}

}  // namespace weft::doctor
