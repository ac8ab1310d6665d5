// Kernel releases as named in /lib/modules, compared number by number.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

// "6.14.0-37-generic" -> 6, 14, 0, 37; at most eight numbers, up to the first word that is not part
// of the version ("arch", "fc").
std::vector<int64_t> NumbersOfRelease(std::string_view release);
// The part after the numbers: "-generic", ".fc43.x86_64". Kernels of one flavor replace each other.
std::string FlavourOfRelease(std::string_view release);
// Installed kernels, by /lib/modules, else by the output of package managers and `ls /boot`. Empty:
// none of these was read.
std::vector<std::string> InstalledKernels(HostView& view);
// The setting by which the boot loader keeps the running kernel although a newer one is installed:
// "GRUB_DEFAULT in /etc/default/grub"; "": none found.
std::string WhatKeepsKernel(HostView& view, const std::string& running);

}  // namespace weft::doctor
