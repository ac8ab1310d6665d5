// Cards: messages of their drivers in the kernel log, in every log format, and whole hosts with
// common cards, healthy and faulty.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "doctor/card_logs.h"
#include "doctor/check.h"
#include "doctor/healthy_hosts.h"
#include "doctor/kernel_log.h"
#include "doctor/rdma.h"
#include "doctor/save.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

using test_hosts::Host;
using test_hosts::LogFault;
using test_hosts::LogForm;
using enum Severity;

std::vector<Finding> LookAtCards(const std::vector<SnapshotFiles>& hosts) {
    std::vector<std::unique_ptr<HostView>> views;
    for (const SnapshotFiles& files : hosts) views.push_back(MakeSnapshotView(files, "host"));
    return RunChecks(views, {}).value();
}

std::string WarningsOf(const std::vector<Finding>& findings) {
    std::string text;
    for (const Finding& f : findings) {
        if (f.severity < kWarn) continue;
        text += fmt::format("{} {}: {} | {} | {}\n", SeverityName(f.severity), f.check, f.read,
                            f.why, f.fix);
    }
    return text;
}

// A host without cards of its own, so that the log is all there is.
SnapshotFiles LogHost(LogForm form, const std::string& messages,
                      test_hosts::Distribution distribution = test_hosts::Distribution::kFedora43) {
    Host host("log", distribution);
    host.Set("cmd/firewall-cmd_--get-active-zones", "trusted\n  interfaces: enp1s0f0np0\n");
    host.Set(test_hosts::LogPath(form), test_hosts::LogText(form, messages));
    return host.Files(form != LogForm::kJournal && form != LogForm::kSyslog &&
                      form != LogForm::kDates && form != LogForm::kLevels);
}

// drivers/net/ethernet/mellanox.
std::vector<LogFault> MellanoxFaults() {
    return {
        // mlx5/core/events.c
        {"mlx5 hot",
         "mlx5_core 0000:01:00.0: temp_warn:183:(pid 0): High temperature on sensors with bit set "
         "0 "
         "1",
         "nic-log", kWarn, "High temperature", "airflow"},
        {"mlx5 module hot",
         "mlx5_core 0000:01:00.0: Port module event[error]: module 0, Cable error, High "
         "Temperature",
         "nic-log", kWarn, "High Temperature", "airflow"},
        {"mlx5 cable error",
         "mlx5_core 0000:01:00.0: Port module event[error]: module 0, Cable error, Bus stuck(I2C "
         "or "
         "data shorted)",
         "nic-log", kWarn, "Cable error", "a cable or module"},
        {"mlx5 module's power",
         "mlx5_core 0000:01:00.1: Port module event[error]: module 1, Cable error, Power budget "
         "exceeded",
         "nic-log", kWarn, "Power budget exceeded", "DAC"},
        // mlx5/core/health.c
        {"mlx5 health",
         "mlx5_core 0000:01:00.0: poll_health:825:(pid 0): device's health compromised - reached "
         "miss count\n"
         "mlx5_core 0000:01:00.0: print_health_info:424:(pid 0): Health issue observed, firmware "
         "internal error, severity(3) ERROR:\n"
         "mlx5_core 0000:01:00.0: print_health_info:443:(pid 0): synd 0x1: firmware internal error",
         "nic-log", kFail, "health compromised", "sudo mstflint -d 0000:01:00.0 query"},
        {"mlx5 fatal",
         "mlx5_core 0000:01:00.0: mlx5_health_check_fatal_sensors:154:(pid 0): Fatal error 3 "
         "detected",
         "nic-log", kFail, "Fatal error 3 detected", "power the machine off"},
        // mlx5/core/cmd.c
        {"mlx5 commands time out",
         "mlx5_core 0000:01:00.0: wait_func:1191:(pid 3202): CREATE_EQ(0x301) timeout. Will cause "
         "a "
         "leak of a command resource",
         "nic-log", kFail, "timeout. Will cause a leak", "power the machine off"},
        // mlx5/core/main.c, drivers/base/dd.c
        {"mlx5 does not start",
         "mlx5_core 0000:01:00.0: wait_fw_init:199:(pid 1): Waiting for FW initialization, timeout "
         "abort in 100s\n"
         "mlx5_core 0000:01:00.0: mlx5_function_enable:1142:(pid 1): Firmware over 120000 MS in "
         "pre-initializing state, aborting\n"
         "mlx5_core 0000:01:00.0: probe with driver mlx5_core failed with error -16",
         "nic-log", kFail, "Firmware over 120000 MS", "power the machine off"},
        {"mlx5 of Linux 6.6 does not start",
         "mlx5_core 0000:01:00.0: probe_one:1764:(pid 1): mlx5_init_one failed with error code "
         "-110\n"
         "mlx5_core: probe of 0000:01:00.0 failed with error -110",
         "nic-log", kFail, "failed with error", "power the machine off"},
        // mlx5/core/en_main.c
        {"mlx5 stalls",
         "mlx5_core 0000:01:00.0 enp1s0f0np0: TX timeout detected\n"
         "mlx5_core 0000:01:00.0 enp1s0f0np0: TX timeout on queue: 5, SQ: 0x1a2f, CQ: 0x47b, SQ "
         "Cons: 0x1 SQ Prod: 0x3, usecs since last trans: 15304000",
         "nic-log", kFail, "TX timeout", "firmware"},
    };
}

// mlx4: cmd.c, catas.c, eq.c, main.c; pci/pci.c.
std::vector<LogFault> OlderMellanoxFaults() {
    return {
        {"mlx4 commands time out",
         "mlx4_core 0000:03:00.0: command 0x31 timed out (go bit not cleared)\n"
         "mlx4_core 0000:03:00.0: device is going to be reset",
         "nic-log", kFail, "go bit not cleared", "sudo mstflint -d 0000:03:00.0 query"},
        {"mlx4 internal error",
         "mlx4_core 0000:03:00.0: Internal error detected:\n"
         "mlx4_core 0000:03:00.0:   buf[00]: 00000000",
         "nic-log", kFail, "Internal error detected", "power the machine off"},
        {"mlx4 hot",
         "mlx4_core 0000:03:00.0: Temperature Threshold was reached! Threshold: 110 celsius "
         "degrees; "
         "Current Temperature: 111",
         "nic-log", kWarn, "Temperature Threshold was reached", "airflow"},
        {"mlx4 without interrupts",
         "mlx4_core 0000:03:00.0: NOP command failed to generate MSI-X interrupt IRQ 34)",
         "nic-log", kFail, "NOP command failed", "iommu=pt"},
        // mlx4/fw.c
        {"mlx4 port type",
         "mlx4_core 0000:03:00.0: Requested port type for port 2 is not supported on this HCA",
         "nic-log", kWarn, "Requested port type", "LINK_TYPE_P"},
        // pci/pci.c
        {"card gone",
         "mlx5_core 0000:01:00.0: Unable to change power state from D3cold to D0, device "
         "inaccessible",
         "nic-log", kFail, "Unable to change power state", "reseat the card"},
    };
}

// drivers/net/ethernet/intel, drivers/infiniband/hw.
std::vector<LogFault> IntelFaults() {
    return {
        // ice/ice_main.c
        {"ice without DDP",
         "ice 0000:c1:00.0: Direct firmware load for intel/ice/ddp/ice.pkg failed with error -2\n"
         "ice 0000:c1:00.0: The DDP package file was not found or could not be read. Entering Safe "
         "Mode",
         "nic-log", kWarn, "Direct firmware load for intel/ice/ddp/ice.pkg failed",
         "sudo dnf install linux-firmware"},
        {"ice with a wrong DDP",
         "ice 0000:c1:00.0: The DDP package file version is lower than the driver supports.  The "
         "driver requires version 1.3.x.x.  Please use an updated DDP Package file.  Entering Safe "
         "Mode.",
         "nic-log", kWarn, "Entering Safe Mode", "sudo dracut -f"},
        {"ice module",
         "ice 0000:c1:00.0 enp193s0f0: An unsupported module type was detected. Refer to the "
         "Intel(R) Ethernet Adapters and Devices User Guide for a list of supported modules",
         "nic-log", kWarn, "unsupported module type", "a cable or module"},
        {"ice stalls",
         "ice 0000:c1:00.0 enp193s0f0: tx_timeout: VSI_num: 6, Q 11, NTC: 0x1a, HW_HEAD: 0x1a, "
         "NTU: "
         "0x1b, INT: 0x1",
         "nic-log", kFail, "tx_timeout", "firmware"},
        // i40e/i40e_main.c
        {"i40e module",
         "i40e 0000:41:00.0: Rx/Tx is disabled on this device because an unsupported SFP module "
         "type "
         "was detected.",
         "nic-log", kWarn, "unsupported SFP", "a cable or module"},
        // ixgbe/ixgbe_main.c
        {"ixgbe module",
         "ixgbe 0000:05:00.0: failed to load because an unsupported SFP+ or QSFP module type was "
         "detected.",
         "nic-log", kWarn, "unsupported SFP", "allow_unsupported_sfp=1"},
        {"ixgbe hot",
         "ixgbe 0000:05:00.0 enp5s0f0: Network adapter has been stopped because it has over "
         "heated. "
         "Restart the computer. If the problem persists, power off the system and replace the "
         "adapter",
         "nic-log", kFail, "over heated", "airflow"},
        // igc/igc_main.c
        {"igc gone", "igc 0000:02:00.0 enp2s0: PCIe link lost, device now detached", "nic-log",
         kFail, "PCIe link lost", "grubby --update-kernel=ALL --args=pcie_aspm=off"},
        // e1000e/netdev.c
        {"e1000e hangs",
         "e1000e 0000:00:1f.6 eno1: Detected Hardware Unit Hang:\n  TDH                  <8>",
         "nic-log", kFail, "Detected Hardware Unit Hang", "sudo ethtool -K eno1 tso off gso off"},
    };
}

// drivers/net/ethernet/{broadcom/bnxt,pensando,realtek}, drivers/thunderbolt, drivers/infiniband.
std::vector<LogFault> OtherCardFaults() {
    return {
        {"bnxt firmware",
         "bnxt_en 0000:41:00.0 enp65s0f0np0: Error (timeout: 500015) msg {0x41 0x1a} len:0 v:0",
         "nic-log", kFail, "Error (timeout:", "power the machine off"},
        {"bnxt stalls",
         "bnxt_en 0000:41:00.0 enp65s0f0np0: TX timeout detected, starting reset task!", "nic-log",
         kFail, "TX timeout detected", "firmware"},
        {"bnxt module",
         "bnxt_en 0000:41:00.0 enp65s0f0np0: Unqualified SFP+ module detected on port 0", "nic-log",
         kWarn, "Unqualified SFP+ module", "a cable or module"},
        {"bnxt hot",
         "bnxt_en 0000:41:00.0 enp65s0f0np0: Chip temperature has gone above the critical thermal "
         "threshold!",
         "nic-log", kWarn, "Chip temperature", "airflow"},
        // bnxt_re/qplib_rcfw.c
        {"bnxt_re commands time out",
         "bnxt_en 0000:41:00.0: QPLIB: cmdq[0x1b]=0x11 timedout (20000)msec", "nic-log", kFail,
         "timedout", "power the machine off"},
        // ionic/ionic_main.c
        {"ionic commands time out",
         "ionic 0000:b5:00.0: DEVCMD IONIC_CMD_NOP (0) timeout after 5 secs", "nic-log", kFail,
         "DEVCMD", "power the machine off"},
        // realtek/r8169_main.c
        {"r8169 hangs",
         "r8169 0000:03:00.0 enp3s0: rtl_rxtx_empty_cond == 0 (loop: 42, delay: 100).", "nic-log",
         kWarn, "rtl_rxtx_empty_cond", "pcie_aspm=off"},
        // net/sched/sch_generic.c
        {"r8169's watchdog", "NETDEV WATCHDOG: enp3s0 (r8169): transmit queue 0 timed out",
         "nic-log", kFail, "transmit queue 0 timed out", "r8125"},
        // hpe/ss1/cass_sbl.c (Slingshot)
        {"cxi link", "cxi_core 0000:21:00.0: cxi0[hsn0]: (sbl): 0: link down alert", "nic-log",
         kWarn, "link down alert", "cable"},
        // net/thunderbolt.c
        {"thunderbolt peer", "thunderbolt-net 0-1.0 thunderbolt0: ThunderboltIP login timed out",
         "nic-log", kWarn, "login timed out", "modprobe thunderbolt-net"},
        // ulp/ipoib/ipoib_multicast.c, ipoib_ib.c
        {"ipoib group",
         "ib0: multicast join failed for ff12:401b:8001:0000:0000:0000:ffff:ffff, status -22",
         "nic-log", kWarn, "multicast join failed", "partitions.conf"},
        {"ipoib partition", "ib0.8001: P_Key 0x8001 not found", "nic-log", kWarn, "P_Key",
         "partitions.conf"},
        // pci/hotplug/pciehp_ctrl.c, pci/quirks.c, pcie/dpc.c
        {"slot does not train",
         "pcieport 0000:00:02.5: pciehp: Slot(0): Link Up\n"
         "pcieport 0000:00:02.5: Data Link Layer Link Active not set in 1000 msec",
         "nic-log", kFail, "Link Active not set", "power the machine off and on"},
        {"broken link",
         "pcieport 0000:00:01.1: broken device, retraining non-functional downstream link at "
         "2.5GT/s\npcieport 0000:00:01.1: retraining failed",
         "nic-log", kFail, "retraining", "reseat the card"},
        {"DPC",
         "pcieport 0000:00:01.1: DPC: containment event, status:0x1f01 source:0x0000\n"
         "pcieport 0000:00:01.1: DPC: unmasked uncorrectable error detected",
         "nic-log", kFail, "DPC: containment event", "reseat the card"},
    };
}

// drivers/gpu/drm, NVIDIA's open-gpu-kernel-modules (nvidia/src/kernel/gpu/rc), drivers/acpi.
std::vector<LogFault> GpuFaults() {
    return {
        {"amdgpu lost", "amdgpu 0000:c5:00.0: amdgpu: device lost from bus!", "kernel-log", kFail,
         "device lost from bus", "reseat the GPU"},
        {"amdgpu lost in sleep",
         "amdgpu 0000:03:00.0: Unable to change power state from D3cold to D0, device inaccessible",
         "kernel-log", kFail, "device inaccessible", "reseat the GPU"},
        {"NVIDIA Xid 79",
         "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the "
         "bus.\nNVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
         "kernel-log", kFail, "fallen off the bus", "reseat the GPU"},
        {"NVIDIA Xid 79 with a process",
         "NVRM: Xid (PCI:0000:65:00): 79, pid=4711, name=weft, GPU has fallen off the bus.",
         "kernel-log", kFail, "fallen off the bus", "reseat the GPU"},
        {"NVIDIA Xid 119",
         "NVRM: Xid (PCI:0000:01:00): 119, pid=4711, name=weft, Timeout after 6s of waiting for "
         "RPC "
         "response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL)",
         "kernel-log", kFail, "119", "NVreg_EnableGpuFirmware=0"},
        {"NVIDIA Xid 48",
         "NVRM: Xid (PCI:0000:01:00): 48, pid=4711, name=weft, DBE (double bit error) ECC Error",
         "kernel-log", kFail, "48", "replace"},
        {"xe wedged",
         "xe 0000:03:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:03:00.0 as wedged.",
         "kernel-log", kFail, "wedged", "boot"},
        {"APU hot",
         "amdgpu 0000:c5:00.0: amdgpu: ERROR: GPU over temperature range(SW CTF) detected!",
         "kernel-log", kFail, "over temperature range", "fans"},
        {"APU shuts down",
         "amdgpu 0000:c5:00.0: amdgpu: ERROR: System is going to shutdown due to GPU SW CTF!",
         "kernel-log", kFail, "SW CTF", "fans"},
        {"critical trip",
         "thermal thermal_zone0: acpitz: critical temperature reached, shutting down", "kernel-log",
         kFail, "critical temperature reached", "fans"},
        {"throttled all the time",
         "mce: CPU3: Package temperature is above threshold, cpu clock is throttled (total events "
         "= "
         "15213)",
         "kernel-log", kWarn, "15213", "fans"},
        {"MES", "amdgpu 0000:c5:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE",
         "kernel-log", kWarn, "MES failed", "gpu-kernel"},
        {"MES of Linux 6.14",
         "amdgpu 0000:c5:00.0: amdgpu: MES(0) failed to respond to "
         "msg=REMOVE_QUEUE",
         "kernel-log", kWarn, "failed to respond", "gpu-kernel"},
        {"amdgpu does not start",
         "amdgpu 0000:c5:00.0: Direct firmware load for amdgpu/gc_11_5_1_mes_2.bin failed with "
         "error -2\namdgpu 0000:c5:00.0: amdgpu: Fatal error during GPU init",
         "kernel-log", kFail, "Fatal error during GPU init", "amd-gpu-firmware"},
    };
}

// Crashes: arch/x86/kernel/dumpstack.c, mm/fault.c, kernel/watchdog.c.
std::vector<LogFault> Crashes() {
    const std::string trace =
        "#PF: supervisor read access in kernel mode\n"
        "Oops: Oops: 0000 [#1] SMP NOPTI\n"
        "CPU: 7 UID: 0 PID: 0 Comm: swapper/7 Not tainted 6.17.7-300.fc43.x86_64 #1\n"
        "RIP: 0010:mlx5e_poll_rx_cq+0x12/0x9e0 [mlx5_core]\n"
        "Call Trace:\n <IRQ>\n mlx5e_napi_poll+0x121/0x6f0 [mlx5_core]\n net_rx_action+0x30e/0x3f0";
    return {
        {"Oops of mlx5",
         "BUG: kernel NULL pointer dereference, address: 0000000000000010\n" + trace, "nic-log",
         kFail, "mlx5_core crashed", "newer kernel"},
        {"page fault of ice",
         "BUG: unable to handle page fault for address: ffffb5a7c0d6a000\n"
         "Oops: 0002 [#1] PREEMPT SMP NOPTI\n"
         "RIP: 0010:ice_clean_rx_irq+0x2d1/0xcb0 [ice]",
         "nic-log", kFail, "ice crashed", "newer kernel"},
        {"BUG of bnxt",
         "kernel BUG at drivers/net/ethernet/broadcom/bnxt/bnxt.c:1234!\n"
         "Oops: invalid opcode: 0000 [#1] SMP",
         "nic-log", kFail, "bnxt_en crashed", "newer kernel"},
        {"soft lockup of irdma",
         "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [kworker/3:1:1234]\n"
         "Modules linked in: irdma(E) ice(E) ib_uverbs(E)\n"
         "RIP: 0010:irdma_sc_ccq_get_cqe_info+0x1c/0x210 [irdma]",
         "nic-log", kFail, "irdma crashed", "newer kernel"},
        {"general protection fault of mlx4",
         "general protection fault, probably for non-canonical address 0xdead000000000100: 0000 "
         "[#1] PREEMPT SMP PTI\nRIP: 0010:mlx4_eq_int+0x2a3/0xd60 [mlx4_core]",
         "nic-log", kFail, "mlx4_core crashed", "newer kernel"},
        {"Oops of RHEL 7",
         "BUG: unable to handle kernel NULL pointer dereference at 0000000000000018\n"
         "IP: [<ffffffffc05a1b2c>] mlx5e_handle_rx_cqe+0x4c/0x370 [mlx5_core]\n"
         "Oops: 0000 [#1] SMP",
         "nic-log", kFail, "mlx5_core crashed", "newer kernel"},
        {"crash of another driver",
         "BUG: kernel NULL pointer dereference, address: 0000000000000010\n"
         "Oops: 0000 [#1] SMP\nRIP: 0010:btrfs_work+0x12/0x20 [btrfs]",
         "kernel-log", kWarn, "NULL pointer", "newer kernel"},
    };
}

std::vector<LogFault> AllLogFaults() {
    std::vector<LogFault> all;
    for (auto list : {MellanoxFaults(), OlderMellanoxFaults(), IntelFaults(), OtherCardFaults(),
                      GpuFaults(), Crashes()}) {
        for (LogFault& fault : list) all.push_back(std::move(fault));
    }
    return all;
}

bool IsNamed(const LogFault& fault, const std::vector<Finding>& findings) {
    return std::ranges::any_of(findings, [&](const Finding& f) {
        return f.check == fault.check && f.severity == fault.severity &&
               Contains(f.read, fault.words) && Contains(f.fix, fault.fix);
    });
}

TEST(DoctorCards, LogsOfHealthyDriversAreNotWarnedOf) {
    for (LogForm form : test_hosts::kLogForms) {
        EXPECT_EQ(WarningsOf(LookAtCards({LogHost(form, test_hosts::HealthyLog())})), "")
            << static_cast<int>(form);
    }
}

TEST(DoctorCards, LogsOfFaultyOnesAreUnderstoodInEveryForm) {
    for (const LogFault& fault : AllLogFaults()) {
        for (LogForm form : test_hosts::kLogForms) {
            const auto findings =
                LookAtCards({LogHost(form, test_hosts::HealthyLog() + fault.lines)});
            EXPECT_TRUE(IsNamed(fault, findings))
                << fault.name << " " << static_cast<int>(form) << "\n"
                << WarningsOf(findings);
            for (const Finding& f : findings) {
                EXPECT_TRUE(f.severity < kWarn || f.check == fault.check)
                    << fault.name << ": " << f.check << ": " << f.read;
                EXPECT_FALSE(Contains(f.fix, "{")  // a mark that nothing has filled
                             && !Contains(f.fix, "awk"))
                    << f.fix;
            }
        }
    }
}

// Drivers change the case of their words.
TEST(DoctorCards, CaseIsNoMatter) {
    for (const LogFault& fault : MellanoxFaults()) {
        std::string lines = fault.lines;
        const size_t at = lines.find(": ") + 2;
        std::ranges::transform(lines.begin() + static_cast<ptrdiff_t>(at), lines.end(),
                               lines.begin() + static_cast<ptrdiff_t>(at),
                               [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
        if (Contains(lines, "\n")) continue;  // its drivers are in capitals, too
        const auto findings = LookAtCards({LogHost(LogForm::kSeconds, lines)});
        EXPECT_TRUE(std::ranges::any_of(findings, [&](const Finding& f) {
            return f.check == fault.check && f.severity == fault.severity;
        })) << lines;
    }
}

// The lines of a log that --save keeps give the same findings.
TEST(DoctorCards, SavedLogsSayTheSame) {
    for (const LogFault& fault : AllLogFaults()) {
        const SnapshotFiles raw = LogHost(LogForm::kSeconds, fault.lines);
        Pseudonyms names;
        const SnapshotFiles saved = SavedFiles(raw, names);
        const auto findings = LookAtCards({saved});
        EXPECT_TRUE(std::ranges::any_of(findings,
                                        [&](const Finding& f) {
                                            return f.check == fault.check &&
                                                   f.severity == fault.severity;
                                        }))
            << fault.name << "\n"
            << saved.at("cmd/dmesg");
        Pseudonyms again;
        EXPECT_EQ(SavedFiles(saved, again).at("cmd/dmesg"), saved.at("cmd/dmesg")) << fault.name;
    }
}

// The cure is the distribution's own.
TEST(DoctorCards, CuresOfLogsAreOfTheDistribution) {
    using enum test_hosts::Distribution;
    const std::string ddp =
        "ice 0000:c1:00.0: The DDP package file was not found or could not be read. Entering Safe "
        "Mode";
    const std::string steering =
        "mlx4_core 0000:03:00.0: DMFS high rate steer mode is: disabled performance optimized "
        "steering";
    const auto fix = [](const std::string& line, test_hosts::Distribution distribution,
                        const char* release) {
        SnapshotFiles files = LogHost(LogForm::kSeconds, line, distribution);
        files["etc/os-release"] = release;
        for (const Finding& f : LookAtCards({files})) {
            if (f.check == "nic-log") return f.fix;
        }
        return std::string("(none)");
    };
    struct Wanted {
        test_hosts::Distribution distribution;
        const char *release, *ddp, *steering;
    };
    const Wanted all[] = {
        {kFedora43, "ID=fedora\nVERSION_ID=43\n", "sudo dnf install linux-firmware", "dracut -f"},
        {kUbuntu2404, "ID=ubuntu\nID_LIKE=debian\n", "sudo apt install --reinstall linux-firmware",
         "update-initramfs -u"},
        {kDebian13, "ID=debian\nVERSION_ID=\"13\"\n", "firmware-intel-misc", "update-initramfs -u"},
        {kDebian13, "ID=debian\nVERSION_ID=\"12\"\n", "firmware-misc-nonfree",
         "update-initramfs -u"},
        {kNixOs, "ID=nixos\n", "hardware.enableRedistributableFirmware = true",
         "boot.extraModprobeConfig"},
        {kFedora43, "ID=arch\n", "sudo pacman -S linux-firmware-intel", "mkinitcpio -P"},
    };
    for (const Wanted& wanted : all) {
        EXPECT_TRUE(Contains(fix(ddp, wanted.distribution, wanted.release), wanted.ddp))
            << fix(ddp, wanted.distribution, wanted.release);
        const std::string steer = fix(steering, wanted.distribution, wanted.release);
        EXPECT_TRUE(Contains(steer, wanted.steering)) << steer;
        EXPECT_TRUE(Contains(steer, "log_num_mgm_entry_size=-7") && Contains(steer, "VLANs"))
            << steer;
    }
}

std::string Repeated(int times, double apart, const std::string& message) {
    std::string text;
    for (int i = 0; i < times; ++i) {
        text += fmt::format("[{:12.6f}] {}\n", 100 + i * apart, message);
    }
    return text;
}

// A link that goes down five times in a quarter of an hour flaps; once a day it does not.
TEST(DoctorCards, LinksThatFlap) {
    const std::string down = "mlx5_core 0000:01:00.0 enp1s0f0np0: Link down";
    const auto warned = [&](int times, double apart) {
        SnapshotFiles files = LogHost(LogForm::kPlain, "");
        files["cmd/dmesg"] = Repeated(times, apart, down);
        return Contains(WarningsOf(LookAtCards({files})), "went down");
    };
    EXPECT_TRUE(warned(6, 20));
    EXPECT_FALSE(warned(4, 20));
    EXPECT_FALSE(warned(20, 86400));
}

// Realtek has one driver for each speed of chip.
TEST(DoctorCards, RealtekChipsGetTheirOwnDriver) {
    for (const auto& [chip, driver] : {std::pair("8168", "(r8168)"),
                                       {"8125", "(r8125)"},
                                       {"8126", "(r8126)"},
                                       {"8127", "(r8127)"}}) {
        SnapshotFiles files =
            LogHost(LogForm::kSeconds,
                    "r8169 0000:03:00.0 enp3s0: rtl_rxtx_empty_cond == 0 (loop: 42, delay: 100).");
        const std::string path = "sys/bus/pci/devices/0000:03:00.0/";
        files[path + "class"] = "0x020000\n";
        files[path + "vendor"] = "0x10ec\n";
        files[path + "device"] = std::string("0x") + chip + "\n";
        const LogFault fault{"hang", "", "nic-log", kWarn, "rtl_rxtx_empty_cond", driver};
        EXPECT_TRUE(IsNamed(fault, LookAtCards({files}))) << chip;
    }
    const SnapshotFiles unknown =
        LogHost(LogForm::kSeconds,
                "r8169 0000:03:00.0 enp3s0: rtl_rxtx_empty_cond == 0 (loop: 42, delay: 100).");
    const LogFault fault{"hang", "", "nic-log", kWarn, "rtl_rxtx_empty_cond", "r8127 for 10 Gb/s"};
    EXPECT_TRUE(IsNamed(fault, LookAtCards({unknown})));
}

// AER faults that only the log reports, of the card or the port above it, in each kernel's words.
TEST(DoctorCards, StormsOfAer) {
    const char* kForms[] = {
        "mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, "
        "(Transmitter ID)",
        "mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, "
        "(Receiver "
        "ID)",
        "pcieport 0000:00:01.1: PCIe Bus Error: severity=Corrected, type=Physical Layer, "
        "id=0009(Receiver ID)",
        "pcieport 0000:00:01.1: AER: Corrected error message received from 0000:01:00.0",
        "pcieport 0000:00:01.1: AER: Multiple Corrected error received: 0000:01:00.0",
    };
    for (const char* line : kForms) {
        for (bool listed : {true, false}) {
            SnapshotFiles files =
                listed ? test_hosts::UfwHost().Files() : LogHost(LogForm::kPlain, "");
            if (listed) files.erase("sys/bus/pci/devices/0000:01:00.0/aer_dev_correctable");
            files["cmd/dmesg"] = Repeated(40, 0.5, line);
            EXPECT_TRUE(Contains(WarningsOf(LookAtCards({files})), "40 lines of corrected errors"))
                << line << listed;
            files["cmd/dmesg"] = Repeated(5, 0.5, line);
            EXPECT_EQ(WarningsOf(LookAtCards({files})), "") << line << listed;
        }
    }
}

}  // namespace
}  // namespace weft::doctor
