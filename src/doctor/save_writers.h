// Writers of what a snapshot keeps of a source: text of any bytes in, the fields in the source's
// own form out; "" where there are none. save.cc says which writer belongs to which source.
#pragma once

#include <string>
#include <string_view>

#include "doctor/names.h"

namespace weft::doctor::save {

using Writer = std::string (*)(std::string_view text, Names& names);

// Values of the kernel's files.
std::string Numbers(std::string_view text, Names&);      // "4096 131072 6291456", "max 100000"
std::string Hexadecimal(std::string_view text, Names&);  // "0x020000"
std::string LinkSpeed(std::string_view text, Names&);    // "8.0 GT/s PCIe", "20.0 Gb/s"
std::string Choice(std::string_view text, Names&);       // "up", "[always] madvise never"
std::string PortState(std::string_view text, Names&);    // "4: ACTIVE"
std::string PortRate(std::string_view text, Names&);     // "100 Gb/sec (4X EDR)"
// "16.35.2000" of whatever begins so: the first three numbers. With real names the whole text.
std::string ShortVersion(std::string_view text, Names&);
std::string Release(std::string_view text, Names&);  // "6.17.7-200.fc43.x86_64"
std::string Gid(std::string_view text, Names&);
std::string GidType(std::string_view text, Names&);
std::string Interface(std::string_view text, Names&);
std::string PciPlace(std::string_view text, Names&);     // a link's target: PCI addresses in it
std::string DevicePlace(std::string_view text, Names&);  // its last part
std::string DriverName(std::string_view text, Names&);   // its last part
std::string AerCounts(std::string_view text, Names&);
std::string KfdNode(std::string_view text, Names&);
std::string CpuInfo(std::string_view text, Names&);
std::string MemoryInfo(std::string_view text, Names&);
std::string Swaps(std::string_view text, Names&);
std::string KernelParameters(std::string_view text, Names&);
std::string KernelVersionLine(std::string_view text, Names&);
std::string ProcessLimits(std::string_view text, Names&);
std::string TcpSegments(std::string_view text, Names&);
std::string ControlGroup(std::string_view text, Names&);
std::string LoginLimits(std::string_view text, Names&);
std::string UnitLimits(std::string_view text, Names&);
std::string OsRelease(std::string_view text, Names&);

// Output of programs.
std::string Lspci(std::string_view text, Names&);
std::string IpJson(std::string_view text, Names&);
std::string EthtoolDriver(std::string_view text, Names&);
std::string EthtoolLink(std::string_view text, Names&);
std::string EthtoolCoalescing(std::string_view text, Names&);
std::string EthtoolPause(std::string_view text, Names&);
std::string EthtoolCounters(std::string_view text, Names&);
std::string Qos(std::string_view text, Names&);
std::string Dmesg(std::string_view text, Names&);
std::string Ufw(std::string_view text, Names&);
std::string FirewalldState(std::string_view text, Names&);
std::string FirewalldZones(std::string_view text, Names&);
std::string Nft(std::string_view text, Names&);
std::string Iptables(std::string_view text, Names&);
std::string Property(std::string_view text, Names&);      // "NTPSynchronized=yes"
std::string Package(std::string_view text, Names&);       // the version's first three numbers
std::string DatedPackage(std::string_view text, Names&);  // "20251125", the date in its version
std::string RdmaResources(std::string_view text, Names&);
std::string ClockState(std::string_view text, Names&);  // "System clock synchronized: yes"
std::string MemoryModules(std::string_view text, Names&);
std::string Ping(std::string_view text, Names&);

// Sources of cards (save_cards.cc).
std::string IpText(std::string_view text, Names&);
std::string RdmaPortsText(std::string_view text, Names&);
std::string Modules(std::string_view text, Names&);
std::string Topology(std::string_view text, Names&);
std::string MasterName(std::string_view text, Names&);  // a link's target, "../br0"
std::string InterfaceList(std::string_view text, Names&);
std::string BondMode(std::string_view text, Names&);
std::string BondFile(std::string_view text, Names&);
std::string CardModel(std::string_view text, Names&);    // "MT4099"
std::string NodeType(std::string_view text, Names&);     // "4: RNIC"
std::string ZeroGuid(std::string_view text, Names&);     // whether it is zero
std::string SensorName(std::string_view text, Names&);   // "mlx5", "asic", "Module0"
std::string Fec(std::string_view text, Names&);          // "Configured FEC encodings: RS"
std::string EventDriver(std::string_view text, Names&);  // "DRIVER=mlx4_core"
std::string GrubParameters(std::string_view text, Names&);
std::string LoaderChoice(std::string_view text, Names&);   // "saved_entry=6.17.8-300.fc43.x86_64"
std::string ChosenRelease(std::string_view text, Names&);  // a kernel's release in whatever
std::string ModuleOptionLines(std::string_view text, Names&);
std::string OptionValue(std::string_view text, Names&);
std::string WaitingPackages(std::string_view text, Names&);
std::string RebootAnswer(std::string_view text, Names&);
std::string KernelPackages(std::string_view text, Names&);
std::string SecurityLabel(std::string_view text, Names&);
std::string SecurityState(std::string_view text, Names&);
std::string Priorities(std::string_view text, Names&);
bool IsOptionModule(std::string_view word);  // whose options may be saved

// Probes.
std::string HostName(std::string_view text, Names&);
std::string Outcome(std::string_view text, Names&);  // "locked 67108864", "rw", "refused: why"
std::string Times(std::string_view text, Names&);    // of measurements

// The last part of a path where it is a place on a bus, "0000:01:00.0" (PCI), "2-1.4:1.0" (USB),
// "0-1.0" (Thunderbolt); else "device".
std::string BusPlace(std::string_view text);
// The last part of a path where it is a driver that is known; else "other", and "" for "".
std::string DriverWord(std::string_view text, const Names& names);
bool IsPciAddress(std::string_view word);  // "0000:01:00.0"

// Why something could not be read, in the words of the system alone.
std::string Reason(std::string_view text);
// The path of a control group without names: "/user.slice/group".
std::string GroupPath(std::string_view path);

}  // namespace weft::doctor::save
