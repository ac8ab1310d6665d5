// What drivers of network cards, PCI Express and IPoIB say.
#include <array>

#include "doctor/log_messages.h"

namespace weft::doctor {
namespace {

using enum Severity;
constexpr LogSubject kCardSays = LogSubject::kCard;

constexpr const char* kNoHeat = "no heat events";
constexpr const char* kHeatWhy = "a hot card or module throttles and then drops its link";
constexpr const char* kAir =
    "more air over the card (passive server cards need a fan of their own in a desktop), clean its "
    "heat sink; 'sensors' shows the temperature";
constexpr const char* kHealthy = "a healthy card";
constexpr const char* kFirmwareHangs =
    "the firmware of the card hangs or has failed: connections through it break off";
constexpr const char* kNewFirmware =
    "power the machine off and on (not only boot), then update the card's firmware ({mstflint}); "
    "where it comes back, the card or its slot is broken";
constexpr const char* kModule = "a module that the card takes";
constexpr const char* kOtherCable =
    "a cable or module that the card's vendor lists; clean and swap both ends";
constexpr const char* kSafeModeWhy =
    "in Safe Mode an E810 has one queue and no RDMA: TCP at a fraction of the card";
constexpr const char* kStalledWhy =
    "the card stopped sending for seconds; the driver reset it, and every connection stalled";
constexpr const char* kStalledFix =
    "update the card's firmware and the kernel; reseat the card; swap the cable";
constexpr const char* kLostWhy = "the card is no longer on the bus: its interface is gone";
constexpr const char* kLostFix =
    "power the machine off and on, reseat the card, its riser and its power cable; keep its link "
    "awake: {aspm}";

// drivers/net/ethernet/mellanox/mlx5/core: events.c, health.c, cmd.c, main.c, en_main.c.
constexpr std::array<LogMessage, 28> kMlx5 = {{
    {kCardSays, "cable error, high temperature", "net", kWarn, kNoHeat, kHeatWhy, kAir},
    {kCardSays, "high temperature", "net", kWarn, kNoHeat, kHeatWhy, kAir},
    {kCardSays, "high temprature", "net", kWarn, kNoHeat, kHeatWhy, kAir},
    {kCardSays, "insufficient power on the pcie slot", "net", kNote,
     "PCIe slot advertised sufficient power",
     "the card may cap itself (13 Gb/s of 200 was seen), though many boards only fail to tell "
     "their power: believe 'weft net bw'",
     "boot with the cable plugged in, use a slot of 75 W, update BIOS and firmware"},
    {kCardSays, "cable error, power budget exceeded", "net", kWarn, kModule,
     "the module asks for more power than the card gives to its cage: the port stays down",
     "a copper cable (DAC) or a module of a lower power class"},
    {kCardSays, "cable error", "net", kWarn, "no cable errors",
     "a module that the card can't read runs at a lower speed or not at all", kOtherCable},
    {kCardSays, "health compromised", "net", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "health issue observed", "net", kWarn, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "firmware internal error", "net", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "irisc not responding", "net", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "unrecoverable hardware error", "net", kFail, kHealthy, kFirmwareHangs,
     kNewFirmware},
    {kCardSays, "firmware crc error", "net", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "icm fetch pci error", "net", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "hw fatal error", "net", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "fatal error * detected", "mlx5_core", kFail, kHealthy, kFirmwareHangs,
     kNewFirmware},
    {kCardSays, "health recovery failed", "net", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "timeout. will cause a leak of a command resource", "net", kFail,
     "a firmware that answers the driver's commands", kFirmwareHangs, kNewFirmware},
    {kCardSays, "failed, status internal error", "net", kWarn,
     "a firmware that answers the driver's commands", kFirmwareHangs, kNewFirmware},
    {kCardSays, "failed, status * syndrome", "net", kNote,
     "commands of the driver that the firmware takes",
     "the firmware refused a command: harmless where a tool asked for what the card lacks", ""},
    {kCardSays, "firmware over * in pre-initializing state", "net", kFail, kHealthy,
     "the firmware did not start: no interface, no RDMA", kNewFirmware},
    {kCardSays, "firmware over * in initializing state", "net", kFail, kHealthy,
     "the firmware did not start: no interface, no RDMA", kNewFirmware},
    {kCardSays, "tx timeout", "net", kFail, "no time-outs of the transmit queue", kStalledWhy,
     kStalledFix},
    {kCardSays, "consider upgrading device fw", "net", kNote, "current firmware",
     "features are off because of old firmware", "update the firmware ({mstflint})"},
    {kCardSays, "optimized steering validation failed", "net", kWarn, "steering that works",
     "flows of RoCE may end in the wrong queue", "update the firmware ({mstflint})"},
    {kCardSays, "probe with driver * failed with error", "net", kFail,
     "a driver that starts the card",
     "the card is there, but the driver could not start it: no interface, no RDMA", kNewFirmware},
    {kCardSays, "probe of * failed with error", "net", kFail, "a driver that starts the card",
     "the card is there, but the driver could not start it: no interface, no RDMA", kNewFirmware},
    {kCardSays, "failed with error code", "net", kFail, "a driver that starts the card",
     "the card is there, but the driver could not start it: no interface, no RDMA", kNewFirmware},
    {kCardSays, "change power state from d3cold to d0", "net", kFail, "a card that wakes", kLostWhy,
     kLostFix},
}};

// drivers/net/ethernet/mellanox/mlx4: main.c, cmd.c, eq.c, catas.c, reset.c.
constexpr std::array<LogMessage, 10> kMlx4 = {{
    {kCardSays, "disabled performance optimized steering", "net", kNote,
     "device managed flow steering",
     "a ConnectX-3 without its fast steering mode: rules are matched in the slow order, some us a "
     "packet under many rules; a pair of hosts with few connections hardly feels it",
     "{steering}; the price: VLANs don't work on the card in that mode"},
    {kCardSays, "timed out (go bit not cleared)", "net", kFail,
     "a firmware that answers the driver's commands", kFirmwareHangs, kNewFirmware},
    {kCardSays, "internal error detected", "mlx4_core mlx4_en", kFail, kHealthy, kFirmwareHangs,
     kNewFirmware},
    {kCardSays, "command * failed: fw status", "net", kNote,
     "commands of the driver that the firmware takes",
     "the firmware refused a command: harmless where a tool asked for what the card lacks", ""},
    {kCardSays, "temperature threshold was reached", "net", kWarn, kNoHeat, kHeatWhy, kAir},
    {kCardSays, "nop command failed to generate", "net", kFail, "interrupts that arrive",
     "the card's interrupts don't reach the processor: the driver gives up, no interface",
     "update the BIOS, another slot; {iommu}"},
    {kCardSays, "device is going to be reset", "net", kWarn, kHealthy, kFirmwareHangs,
     kNewFirmware},
    {kCardSays, "pci device did not come back after reset", "net", kFail, kHealthy, kLostWhy,
     kLostFix},
    {kCardSays, "requested port type for port * is not supported", "net", kWarn,
     "a port of the protocol that the other end speaks",
     "the port can't be what it was set to: it stays down", "{linktype}"},
    {kCardSays, "port type * not supported", "mlx4_core", kWarn,
     "a port of the protocol that the other end speaks",
     "the port can't be what it was set to: it stays down", "{linktype}"},
}};

// drivers/net/ethernet/intel: ice/ice_main.c, ice_lib.c, i40e/i40e_main.c, ixgbe/ixgbe_main.c,
// igc/igc_main.c, e1000e/netdev.c.
constexpr std::array<LogMessage, 28> kIntel = {{
    {kCardSays, "ddp package file was not found", "ice", kWarn, "ice with its DDP package",
     kSafeModeWhy, "{ddp}"},
    {kCardSays, "not compatible with the ddp package", "ice", kWarn, "ice with its DDP package",
     kSafeModeWhy, "update the card's NVM (Intel's nvmupdate64e), then boot"},
    {kCardSays, "entering safe mode", "net", kWarn, "ice with its DDP package", kSafeModeWhy,
     "{ddp}"},
    {kCardSays, "direct firmware load for intel/ice/ddp/ice.pkg failed", "", kWarn,
     "ice with its DDP package", kSafeModeWhy, "{ddp}"},
    {kCardSays, "ddp package failed", "net", kWarn, "ice with its DDP package", kSafeModeWhy,
     "{ddp}"},
    {kCardSays, "an unsupported sfp", "ixgbe", kWarn, kModule, "the port stays down",
     "a listed module, or {ixgbe}"},
    {kCardSays, "unsupported sfp", "net", kWarn, kModule, "the port stays down", kOtherCable},
    {kCardSays, "unsupported module", "net", kWarn, kModule, "the port stays down or runs slower",
     kOtherCable},
    {kCardSays, "module type is not supported", "net", kWarn, kModule, "the port stays down",
     kOtherCable},
    {kCardSays, "module's power requirements exceed", "net", kWarn, kModule,
     "the module asks for more power than the card gives to its cage: the port stays down",
     "a copper cable (DAC) or a module of a lower power class"},
    {kCardSays, "module is incompatible with the device's nvm image", "net", kWarn, kModule,
     "the port stays down", "update the card's NVM (Intel's nvmupdate64e), or a listed module"},
    {kCardSays, "cannot communicate with the module", "net", kWarn, kModule, "the port stays down",
     kOtherCable},
    {kCardSays, "parallel fault", "net", kWarn, kModule, "the port stays down", kOtherCable},
    {kCardSays, "port speed is limited due to module", "net", kWarn, kModule,
     "the module is slower than the port", kOtherCable},
    {kCardSays, "possible mis-configuration of the ethernet port", "net", kNote,
     "ports set up as they are cabled", "the port's options don't fit the module in it",
     "set the port option with Intel's Ethernet Port Configuration Tool (epct), then boot"},
    {kCardSays, "tx_timeout:", "net", kFail, "no time-outs of the transmit queue", kStalledWhy,
     kStalledFix},
    {kCardSays, "detected tx unit hang", "net", kFail, "a card that sends", kStalledWhy,
     "sudo ethtool -K {device} tso off gso off, and a newer kernel and firmware; keep the link "
     "awake: {aspm}"},
    {kCardSays, "detected hardware unit hang", "net", kFail, "a card that sends", kStalledWhy,
     "sudo ethtool -K {device} tso off gso off, and a newer kernel and firmware; keep the link "
     "awake: {aspm}"},
    {kCardSays, "malicious driver detection event", "net", kWarn, "a driver that the card trusts",
     "the card switched a queue off that it took for broken", "update kernel and firmware"},
    {kCardSays, "tx driver issue detected", "net", kWarn, "a driver that the card trusts",
     "the card was reset: connections stalled", "update kernel and firmware"},
    {kCardSays, "nvm image is newer than expected", "net", kFail, "a driver that knows the card",
     "the driver stopped: no interface", "a newer kernel, or the card's older NVM image"},
    {kCardSays, "pcie link lost", "net", kFail, "a card on the bus", kLostWhy, kLostFix},
    {kCardSays, "failed to read reg", "igc igb", kFail, "a card on the bus", kLostWhy, kLostFix},
    {kCardSays, "adapter removed", "ixgbe ice i40e", kFail, "a card on the bus", kLostWhy,
     kLostFix},
    {kCardSays, "overheated", "net", kFail, kNoHeat, kHeatWhy, kAir},
    {kCardSays, "over heated", "net", kFail, kNoHeat, kHeatWhy, kAir},
    {kCardSays, "over temperature", "net", kFail, kNoHeat, kHeatWhy, kAir},
    {kCardSays, "critical temperature", "net", kFail, kNoHeat, kHeatWhy, kAir},
}};

// drivers/net/ethernet/broadcom/bnxt/bnxt.c, drivers/infiniband/hw/bnxt_re/qplib_rcfw.c,
// pensando/ionic/ionic_main.c, realtek/r8169_main.c, and cxi_core's cass_sbl.c.
constexpr std::array<LogMessage, 19> kOthers = {{
    {kCardSays, "unqualified sfp+ module", "net", kWarn, kModule,
     "the card may switch the port's transmitter off", kOtherCable},
    {kCardSays, "chip temperature has gone above", "net", kWarn, kNoHeat, kHeatWhy, kAir},
    {kCardSays, "error (timeout:", "bnxt_en bnxt_re", kFail,
     "a firmware that answers the driver's commands", kFirmwareHangs, kNewFirmware},
    {kCardSays, "firmware not responding", "net", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "detected firmware fatal condition", "net", kFail, kHealthy, kFirmwareHangs,
     kNewFirmware},
    {kCardSays, "firmware init failed", "net", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "timedout", "bnxt_en bnxt_re", kFail,
     "a firmware that answers the driver's commands", kFirmwareHangs, kNewFirmware},
    {kCardSays, "pause storm detected", "net", kWarn, "pause frames now and then",
     "an end that pauses the other all the time stops the whole link",
     "look for the host that can't keep up (pcie-link there); PFC in place of pause frames"},
    {kCardSays, "devcmd * timeout", "net", kFail, "a firmware that answers the driver's commands",
     kFirmwareHangs, kNewFirmware},
    {kCardSays, "fw down", "ionic", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "(loop:", "r8169 r8125 r8126 r8127", kWarn, "a chip that answers its driver",
     "the chip hung: no traffic until it is reset",
     "keep its link awake: {aspm}; a newer kernel, or Realtek's own driver (r8125)"},
    {kCardSays, "serdes fw corruption alert", "net", kFail, kHealthy, kFirmwareHangs, kNewFirmware},
    {kCardSays, "link down alert", "cxi_core cxi_ss1", kWarn, "a link that stays up",
     "the Slingshot link went down: what ran over it stalled",
     "reseat or swap the cable; the switch's port tells why (fmn-show-status, or its log)"},
    {kCardSays, "degrade alert", "cxi_core cxi_ss1", kWarn, "all lanes of the link",
     "the Slingshot link lost a lane: a fraction of its speed",
     "reseat or swap the cable; the switch's port tells why"},
    {kCardSays, "degrade failure alert", "cxi_core cxi_ss1", kWarn, "all lanes of the link",
     "the Slingshot link lost a lane: a fraction of its speed",
     "reseat or swap the cable; the switch's port tells why"},
    {kCardSays, "thunderboltip login timed out", "", kWarn, "a peer that answers",
     "the other host does not answer: the cable carries no network",
     "sudo modprobe thunderbolt-net on the other host; unplug the cable and plug it in again"},
    {kCardSays, "p_key * not found", "", kWarn, "the partition in the port's table",
     "the subnet manager has not given this port the partition: the interface carries nothing",
     "add the port's GUID to the partition in /etc/opensm/partitions.conf, then restart opensm"},
    {kCardSays, "multicast join failed for * status -22", "", kWarn, "IPoIB that joins its groups",
     "the interface's partition, rate or MTU is not the one of the fabric's group: no address is "
     "found, nothing is carried",
     "the same partition, and IPoIB's MTU and rate of /etc/opensm/partitions.conf, on all hosts; "
     "then restart opensm"},
    {kCardSays, "multicast join failed for * status -110", "", kNote, "IPoIB that joins its groups",
     "the subnet manager did not answer in time", "exactly one subnet manager (opensm)"},
}};

// drivers/pci: pcie/dpc.c, hotplug/pciehp_ctrl.c, pci.c, quirks.c.
constexpr std::array<LogMessage, 8> kSlots = {{
    {kCardSays, "dpc: containment event", "", kFail, "a link without fatal errors",
     "the port cut the card off after an error that could not be corrected",
     "reseat the card, change the riser or cable, update the BIOS"},
    {kCardSays, "retraining failed", "", kFail, "a link that trains", kLostWhy,
     "power the machine off and on; reseat the card, change the riser or cable; one generation "
     "less for the slot in the BIOS"},
    {kCardSays, "broken device, retraining", "", kFail, "a link that trains",
     "the card in this slot does not answer at its speed, or not at all",
     "reseat the card, change the riser or cable; one generation less for the slot in the BIOS"},
    {kCardSays, "link active not set in", "", kFail, "a link that trains",
     "something is in the slot, but its link did not come up: the card is absent",
     "power the machine off and on (an Oculink card before the machine); reseat the card, change "
     "the riser or cable"},
    {kCardSays, "not ready * after * giving up", "", kFail, "a card that comes back after a reset",
     kLostWhy, kLostFix},
    {kCardSays, "device inaccessible", "net", kFail, "a card on the bus", kLostWhy, kLostFix},
    {kCardSays, "device lost from bus", "net", kFail, "a card on the bus", kLostWhy, kLostFix},
    {kCardSays, "no usable space for bar", "", kNote, "room for the card's memory",
     "the BIOS gave the card no addresses", "Above 4G Decoding on in the BIOS"},
}};

constexpr auto kAllCardMessages = JoinedRows(kMlx5, kMlx4, kIntel, kOthers, kSlots);

}  // namespace

std::span<const LogMessage> CardMessages() {
    return kAllCardMessages;
}

}  // namespace weft::doctor
