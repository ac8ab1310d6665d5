// Lines of kernel logs of healthy and of faulty hosts, by driver, in the format strings of Linux's
// sources. Each fault names the source of its line.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "doctor/finding.h"
#include "doctor/text.h"

namespace weft::doctor::test_hosts {

// The formats of a log.
enum class LogForm { kPlain, kSeconds, kDates, kJournal, kSyslog, kLevels, kCaller };
inline constexpr LogForm kLogForms[] = {LogForm::kPlain,   LogForm::kSeconds, LogForm::kDates,
                                        LogForm::kJournal, LogForm::kSyslog,  LogForm::kLevels,
                                        LogForm::kCaller};

inline std::string LogPath(LogForm form) {
    switch (form) {
        case LogForm::kDates: return "cmd/dmesg_-T";
        case LogForm::kJournal: return "cmd/journalctl_-k_-b";
        case LogForm::kSyslog: return "var/log/kern.log";
        case LogForm::kLevels: return "cmd/dmesg_-x";
        case LogForm::kPlain:
        case LogForm::kSeconds:
        case LogForm::kCaller: return "cmd/dmesg";
    }
    return "";
}

inline std::string LogText(LogForm form, const std::string& messages) {
    std::string text;
    int second = 3;
    for (std::string_view message : Lines(messages)) {
        if (message.empty()) continue;
        const int m = second / 60 % 60, s = second % 60;
        switch (form) {
            case LogForm::kPlain: text += fmt::format("{}\n", message); break;
            case LogForm::kSeconds:
                text += fmt::format("[{:5}.{:06}] {}\n", second, second * 7, message);
                break;
            case LogForm::kDates:
                text += fmt::format("[Mon Nov 23 13:{:02}:{:02} 2026] {}\n", m, s, message);
                break;
            case LogForm::kJournal:
                text += fmt::format("Nov 23 13:{:02}:{:02} node-a kernel: {}\n", m, s, message);
                break;
            case LogForm::kSyslog:
                text += fmt::format(
                    "2026-11-23T13:{:02}:{:02}.118212+00:00 node-a kernel: [{:5}.000000] {}\n", m,
                    s, second, message);
                break;
            case LogForm::kLevels:
                text += fmt::format("kern  :warn  : [{:5}.{:06}] {}\n", second, second, message);
                break;
            case LogForm::kCaller:
                text += fmt::format("[{:5}.{:06}][  T123] {}\n", second, second, message);
                break;
        }
        second += 2;
    }
    return text;
}

struct LogFault {
    const char* name;
    std::string lines;
    const char* check;
    Severity severity;
    const char* words;  // of the finding
    const char* fix;    // of the fix
};

// Messages of healthy drivers at boot.
inline std::string HealthyLog() {
    return
        // mlx5_core
        "mlx5_core 0000:01:00.0: firmware version: 16.35.4030\n"
        "mlx5_core 0000:01:00.0: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)\n"
        "mlx5_core 0000:01:00.0: Rate limit: 127 rates are supported, range: 0Mbps to 24414Mbps\n"
        "mlx5_core 0000:01:00.0: E-Switch: Total vports 2, per vport: max uc(128) max mc(2048)\n"
        "mlx5_core 0000:01:00.0: Flow counters bulk query buffer size increased, "
        "bulk_query_len(8)\n"
        "mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged\n"
        "mlx5_core 0000:01:00.0: mlx5_pcie_event:301:(pid 512): PCIe slot advertised sufficient "
        "power (75W).\n"
        "mlx5_core 0000:01:00.1: Port module event: module 1, Cable unplugged\n"
        "mlx5_core 0000:01:00.0: MLX5E: StrdRq(1) RqSz(8) StrdSz(2048) RxCqeCmprss(0 basic)\n"
        "mlx5_core 0000:01:00.0 enp1s0f0np0: renamed from eth0\n"
        "mlx5_core 0000:01:00.0 enp1s0f0np0: Link up\n"
        "mlx5_core 0000:01:00.1 enp1s0f1np1: Link down\n"
        // ice
        "ice: Intel(R) Ethernet Connection E800 Series Linux Driver\n"
        "ice 0000:c1:00.0: The DDP package was successfully loaded: ICE OS Default Package version "
        "1.3.41.0\n"
        "ice 0000:c1:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)\n"
        "ice 0000:c1:00.0: RX queue 0 with flow director disabled\n"
        "ice 0000:c1:00.0 enp193s0f0: NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS-FEC, "
        "Negotiated FEC: RS-FEC, Autoneg Advertised: On, Autoneg Negotiated: True, Flow Control: "
        "None\n"
        // bnxt_en, igc, r8169, atlantic
        "bnxt_en 0000:41:00.0 enp65s0f0np0: NIC Link is Up, 25000 Mbps full duplex, Flow control: "
        "none\n"
        "bnxt_en 0000:41:00.0 enp65s0f0np0: FEC autoneg off encoding: Clause 91 RS(528,514)\n"
        "igc 0000:02:00.0 enp2s0: NIC Link is Up 2500 Mbps Full Duplex, Flow Control: RX\n"
        "r8169 0000:03:00.0: can't disable ASPM; OS doesn't have ASPM control\n"
        "r8169 0000:03:00.0 enp3s0: Link is Down\n"
        "r8169 0000:03:00.0 enp3s0: Link is Up - 1Gbps/Full - flow control rx/tx\n"
        "atlantic 0000:04:00.0 enp4s0: atlantic: link change old 0 new 10000\n"
        // the machine
        "pcieport 0000:00:01.1: AER: enabled with IRQ 34\n"
        "pcieport 0000:00:01.1: pciehp: Slot #0 AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ "
        "Surprise+ Interlock- NoCompl+ IbPresDis- LLActRep+\n"
        "[Firmware Bug]: TSC doesn't count with P0 frequency!\n"
        "ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0.GPP7], AE_NOT_FOUND\n"
        "thermal LNXTHERM:00: registered as thermal_zone0\n"
        "mce: CPU0: Thermal monitoring enabled (TM1)\n"
        "workqueue: psi_avgs_work hogged CPU for >10000us 4 times, consider switching to "
        "WQ_UNBOUND\n"
        "perf: interrupt took too long (2509 > 2500), lowering kernel.perf_event_max_sample_rate\n"
        "platform regulatory.0: Direct firmware load for regulatory.db failed with error -2\n"
        "bluetooth hci0: Direct firmware load for mediatek/BT_RAM_CODE.bin failed with error -2\n"
        "audit: type=1400 audit(1763900000.411:12): avc:  denied  { read } for  pid=1 "
        "comm=\"systemd\" name=\"x\"\n"
        // GPUs
        "[drm] amdgpu kernel modesetting enabled.\n"
        "amdgpu 0000:c5:00.0: amdgpu: SMU is initialized successfully!\n"
        "amdgpu 0000:c5:00.0: [drm] Display Core v3.2.334 initialized on DCN 3.5.1\n"
        "amdgpu 0000:c5:00.0: amdgpu: ring gfx_0.0.0 uses VM inv eng 0 on hub 0\n"
        "amdgpu 0000:c5:00.0: amdgpu: amdgpu: 512M of VRAM memory ready\n"
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2026\n"
        "xe 0000:03:00.0: [drm] Using GuC firmware from xe/bmg_guc_70.bin version 70.45.2\n"
        "thunderbolt 0-1: new host found, vendor=0x8086 device=0x1\n"
        "thunderbolt-net 0-1.0 thunderbolt0: renamed from eth1\n"
        "docker0: port 1(veth12ab34c) entered blocking state\n"
        "br0: port 2(tap0) entered forwarding state\n";
}

}  // namespace weft::doctor::test_hosts
