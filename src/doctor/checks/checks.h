// Every check, one a file. To add one: a file in this folder, a line here, and a line in the table
// of checks.cc; its good and its bad snapshots go to tests/doctor/data.
#pragma once

#include "doctor/check.h"

namespace weft::doctor::checks {

extern const Check kPcieLink;
extern const Check kPcieUpstream;
extern const Check kPciePower;
extern const Check kPcieErrors;
extern const Check kPcieAbsent;
extern const Check kNicGpu;
extern const Check kHeat;
extern const Check kNicDriver;
extern const Check kNicLog;
extern const Check kNicSpeed;
extern const Check kNicCoalescing;
extern const Check kBondMode;
extern const Check kRebootPending;
extern const Check kRdmaDevice;
extern const Check kRdmaPort;
extern const Check kRdmaGid;
extern const Check kRdmaAccess;
extern const Check kRdmaMtu;
extern const Check kRdmaLeaks;
extern const Check kRdmaLibrary;
extern const Check kRoceFlowControl;
extern const Check kIbSubnetManager;
extern const Check kIbIpoib;
extern const Check kIbManagerLog;
extern const Check kMemlock;
extern const Check kMemlockLogin;
extern const Check kMemlockSystemd;
extern const Check kGpuAccess;
extern const Check kGpuKernel;
extern const Check kGpuRocm;
extern const Check kGpuFirmware;
extern const Check kGpuMemory;
extern const Check kGpuVulkan;
extern const Check kKernelParameters;
extern const Check kKernelLog;
extern const Check kIommu;
extern const Check kCpuGovernor;
extern const Check kNumaBalancing;
extern const Check kHugePages;
extern const Check kSwap;
extern const Check kCgroupLimits;
extern const Check kMemorySpeed;
extern const Check kNetSubnet;
extern const Check kTcpSettings;
extern const Check kFirewall;
extern const Check kClockSync;
extern const Check kThunderbolt;
extern const Check kMeasured;
extern const Check kNicCounters;
extern const Check kRdmaCounters;
extern const Check kTcpRetransmits;
extern const Check kCpuThrottling;
extern const Check kAcrossRoute;
extern const Check kAcrossAddress;
extern const Check kAcrossMtu;
extern const Check kAcrossPath;
extern const Check kAcrossPorts;
extern const Check kAcrossFec;
extern const Check kAcrossCards;
extern const Check kAcrossClock;
extern const Check kAcrossKernel;
extern const Check kIbOneManager;
extern const Check kAcrossMeasured;

}  // namespace weft::doctor::checks
