#include "gpu/vulkan/guard.h"

namespace weft::gpu {

VkResult Guard::Create(const Calls& calls, VkDevice device, const char*& call) {
    VkDescriptorSetLayoutBinding word{};
    word.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    word.descriptorCount = 1;
    word.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
    VkDescriptorSetLayoutCreateInfo layout_info{};
    layout_info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
    layout_info.bindingCount = 1;
    layout_info.pBindings = &word;
    call = "vkCreateDescriptorSetLayout";
    VkResult result = calls.CreateDescriptorSetLayout(device, &layout_info, nullptr, &layout);
    if (result != VK_SUCCESS) {
        layout = VK_NULL_HANDLE;
        return result;
    }
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1};
    VkDescriptorPoolCreateInfo pool_info{};
    pool_info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
    pool_info.maxSets = pool_info.poolSizeCount = 1;
    pool_info.pPoolSizes = &size;
    call = "vkCreateDescriptorPool";
    result = calls.CreateDescriptorPool(device, &pool_info, nullptr, &pool);
    if (result != VK_SUCCESS) {
        pool = VK_NULL_HANDLE;
        return result;
    }
    VkDescriptorSetAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
    info.descriptorPool = pool;
    info.descriptorSetCount = 1;
    info.pSetLayouts = &layout;
    call = "vkAllocateDescriptorSets";
    return calls.AllocateDescriptorSets(device, &info, &set);
}

void Guard::PointAt(const Calls& calls, VkDevice device, VkBuffer buffer) const {
    const VkDescriptorBufferInfo word{buffer, 0, kBytes};
    VkWriteDescriptorSet write{};
    write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    write.dstSet = set;
    write.descriptorCount = 1;
    write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    write.pBufferInfo = &word;
    calls.UpdateDescriptorSets(device, 1, &write, 0, nullptr);
}

void Guard::Destroy(const Calls& calls, VkDevice device) {
    if (pool != VK_NULL_HANDLE) calls.DestroyDescriptorPool(device, pool, nullptr);
    if (layout != VK_NULL_HANDLE) calls.DestroyDescriptorSetLayout(device, layout, nullptr);
}

}  // namespace weft::gpu
