// Releases of kernels, as /lib/modules names them: compared number by number.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

// "6.14.0-37-generic" -> 6, 14, 0, 37; up to eight numbers, up to the first word that is none of
// the version's ("arch", "fc").
std::vector<int64_t> NumbersOfRelease(std::string_view release);
// What follows the numbers: "-generic", ".fc43.x86_64"; kernels of one flavour replace each other.
std::string FlavourOfRelease(std::string_view release);
// Kernels that are installed, by /lib/modules, else by what package managers and `ls /boot` print;
// none where that was not read.
std::vector<std::string> InstalledKernels(HostView& view);
// What makes the boot loader take the running kernel though a newer one is there: "GRUB_DEFAULT in
// /etc/default/grub"; "" where nothing that was read does.
std::string WhatKeepsKernel(HostView& view, const std::string& running);

}  // namespace weft::doctor
