/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs by way of the runtime: every call reaches the driver, with its arguments where they belong. Also right on real
 * CUDA. */
#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <unistd.h>

#define OK(call) cr_assert_eq((call), cudaSuccess, "%s: %s", #call, cudaGetErrorName(cudaPeekAtLastError()))
#define FAILS(call, error) cr_assert_eq((call), (error), "%s did not return %s", #call, #error)

#define WORDS 8

static unsigned *data;
static cudaStream_t stream, other;

static void setup(void)
{
    OK(cudaMalloc((void **)&data, WORDS * 4));
    OK(cudaMemset(data, 0, WORDS * 4));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(cudaDeviceSynchronize());
}

static unsigned word(int i)
{
    unsigned v;
    OK(cudaMemcpy(&v, data + i, 4, cudaMemcpyDeviceToHost));
    return v;
}

static struct cudaMemsetParams setting(int i, unsigned value)
{
    return (struct cudaMemsetParams){.dst = data + i, .value = value, .elementSize = 4, .width = 1, .height = 1};
}

static cudaGraphExec_t run(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    return exec;
}

static void count_call(void *user)
{
    ++*(int *)user;
}

Test(softgpu_runtime_graph, nodes_of_every_kind, .init = setup)
{
    struct cudaMemsetParams fill = setting(0, 5), fill_out;
    struct cudaMemcpy3DParms copy_out;
    int calls = 0;
    struct cudaHostNodeParams host = {count_call, &calls}, host_out;
    cudaGraphNode_t a, b, c, d, e, f, list[8];
    enum cudaGraphNodeType type;
    cudaEvent_t event, event_out;
    cudaGraph_t graph, clone;
    size_t n = 8;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemsetNode(&a, graph, NULL, 0, &fill));
    OK(cudaGraphAddMemcpyNode1D(&b, graph, &a, 1, data + 1, data, 4, cudaMemcpyDeviceToDevice));
    OK(cudaGraphAddHostNode(&c, graph, &b, 1, &host));
    OK(cudaGraphAddEventRecordNode(&d, graph, &c, 1, event));
    OK(cudaGraphAddEmptyNode(&e, graph, &d, 1));
    OK(cudaGraphAddEventWaitNode(&f, graph, &e, 1, event));
    OK(cudaGraphNodeGetType(f, &type));
    cr_assert_eq(type, cudaGraphNodeTypeWaitEvent);
    OK(cudaGraphGetRootNodes(graph, list, &n));
    cr_assert(n == 1 && list[0] == a);
    n = 8;
    OK(cudaGraphNodeGetDependencies(b, list, NULL, &n));
    cr_assert(n == 1 && list[0] == a);
    OK(cudaGraphMemsetNodeGetParams(a, &fill_out));
    cr_assert(fill_out.dst == data && fill_out.value == 5);
    OK(cudaGraphMemcpyNodeGetParams(b, &copy_out));
    cr_assert(copy_out.dstPtr.ptr == data + 1 && copy_out.srcPtr.ptr == data && copy_out.extent.width == 4);
    OK(cudaGraphHostNodeGetParams(c, &host_out));
    cr_assert(host_out.fn == count_call && host_out.userData == &calls);
    OK(cudaGraphEventRecordNodeGetEvent(d, &event_out));
    cr_assert_eq(event_out, event);
    cudaGraphExec_t exec = run(graph);
    cr_assert(word(0) == 5 && word(1) == 5 && calls == 1);
    OK(cudaEventQuery(event));
    fill = setting(0, 6);
    OK(cudaGraphExecMemsetNodeSetParams(exec, a, &fill));
    OK(cudaGraphExecMemcpyNodeSetParams1D(exec, b, data + 2, data, 4, cudaMemcpyDeviceToDevice));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    cr_assert(word(1) == 5 && word(2) == 6 && calls == 2);
    OK(cudaGraphClone(&clone, graph));
    OK(cudaGraphNodeFindInClone(&list[0], b, clone));
    OK(cudaGraphDestroyNode(list[0]));
    OK(cudaGraphDestroy(clone));
}

Test(softgpu_runtime_graph, the_general_form_and_children, .init = setup)
{
    struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeMemset};
    cudaGraphNode_t node, child, copy;
    cudaGraph_t graph, outer, inner;
    params.memset.dst = data;
    params.memset.value = 3;
    params.memset.elementSize = 4;
    params.memset.width = params.memset.height = 1;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    OK(cudaGraphCreate(&outer, 0));
    OK(cudaGraphAddChildGraphNode(&child, outer, NULL, 0, graph));
    params = (struct cudaGraphNodeParams){.type = cudaGraphNodeTypeMemcpy};
    params.memcpy.copyParams = (struct cudaMemcpy3DParms){
        .srcPtr = {data, 4, 4, 1}, .dstPtr = {data + 1, 4, 4, 1}, .extent = {4, 1, 1}, .kind = cudaMemcpyDefault};
    OK(cudaGraphAddNode(&copy, outer, &child, NULL, 1, &params));
    cudaGraphExec_t exec = run(outer);
    cr_assert_eq(word(1), 3);
    OK(cudaGraphChildGraphNodeGetGraph(child, &inner));
    cr_assert_neq(inner, graph);
    struct cudaMemsetParams fill = setting(0, 4);
    OK(cudaGraphMemsetNodeSetParams(node, &fill));
    OK(cudaGraphExecChildGraphNodeSetParams(exec, child, graph));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    cr_assert_eq(word(1), 4);
}

Test(softgpu_runtime_graph, updates_say_what_is_wrong, .init = setup)
{
    struct cudaMemsetParams one = setting(0, 1), two = setting(1, 2);
    cudaGraphExecUpdateResultInfo info;
    cudaGraphNode_t a, b;
    cudaGraph_t first, second;
    OK(cudaGraphCreate(&first, 0));
    OK(cudaGraphCreate(&second, 0));
    OK(cudaGraphAddMemsetNode(&a, first, NULL, 0, &one));
    OK(cudaGraphAddMemsetNode(&b, second, NULL, 0, &two));
    cudaGraphExec_t exec = run(first);
    OK(cudaGraphExecUpdate(exec, second, &info));
    cr_assert_eq(info.result, cudaGraphExecUpdateSuccess);
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    cr_assert_eq(word(1), 2);
    OK(cudaGraphAddEmptyNode(&b, second, &b, 1));
    FAILS(cudaGraphExecUpdate(exec, second, &info), cudaErrorGraphExecUpdateFailure);
    cr_assert_eq(info.result, cudaGraphExecUpdateErrorTopologyChanged);
}

Test(softgpu_runtime_graph, captures_into_a_graph_with_external_events, .init = setup)
{
    struct cudaMemsetParams fill = setting(0, 7);
    cudaGraphInstantiateParams how = {.flags = cudaGraphInstantiateFlagUseNodePriority};
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *now;
    unsigned long long id, flags;
    cudaGraphNode_t first;
    cudaGraphExec_t exec;
    cudaGraph_t graph, same;
    cudaEvent_t event;
    size_t n;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemsetNode(&first, graph, NULL, 0, &fill));
    OK(cudaStreamBeginCaptureToGraph(stream, graph, &first, NULL, 1, cudaStreamCaptureModeRelaxed));
    OK(cudaStreamGetCaptureInfo(stream, &status, &id, &same, &now, NULL, &n));
    cr_assert(same == graph && n == 1 && now[0] == first);
    OK(cudaStreamUpdateCaptureDependencies(stream, NULL, NULL, 0, cudaStreamSetCaptureDependencies));
    OK(cudaStreamUpdateCaptureDependencies(stream, &first, NULL, 1, cudaStreamAddCaptureDependencies));
    OK(cudaMemcpyAsync(data + 1, data, 4, cudaMemcpyDeviceToDevice, stream));
    OK(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
    OK(cudaStreamEndCapture(stream, &same));
    OK(cudaGraphInstantiateWithParams(&exec, graph, &how));
    cr_assert_eq(how.result_out, cudaGraphInstantiateSuccess);
    OK(cudaGraphExecGetFlags(exec, &flags));
    cr_assert_eq(flags, cudaGraphInstantiateFlagUseNodePriority);
    OK(cudaGraphUpload(exec, stream));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    OK(cudaMemcpyAsync(data + 2, data + 1, 4, cudaMemcpyDeviceToDevice, other));
    OK(cudaStreamSynchronize(other));
    cr_assert_eq(word(2), 7);
    FAILS(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal), cudaErrorInvalidValue);
}

Test(softgpu_runtime_graph, captures_allocate, .init = setup)
{
    struct cudaMemAllocNodeParams params;
    cudaGraphNode_t nodes[4];
    unsigned *pointer;
    void *freed = NULL;
    size_t n = 4, used = 99;
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync((void **)&pointer, 256, stream));
    OK(cudaMemsetAsync(pointer, 1, 256, stream));
    OK(cudaMemcpyAsync(data, pointer, 4, cudaMemcpyDeviceToDevice, stream));
    OK(cudaFreeAsync(pointer, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, nodes, &n));
    cr_assert_eq(n, 4);
    OK(cudaGraphMemAllocNodeGetParams(nodes[0], &params));
    cr_assert(params.dptr == pointer && params.bytesize == 256);
    OK(cudaGraphMemFreeNodeGetParams(nodes[3], &freed));
    cr_assert_eq(freed, pointer);
    OK(cudaGraphExecDestroy(run(graph)));
    cr_assert_eq(word(0), 0x01010101);
    OK(cudaGraphDestroy(graph));
    OK(cudaDeviceGraphMemTrim(0));
    OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
    cr_assert_eq(used, 0);
}

static _Atomic int ended;

static void end_it(void *user)
{
    atomic_store((_Atomic int *)user, 1);
}

Test(softgpu_runtime_graph, user_objects_end_with_the_last_graph, .init = setup)
{
    cudaUserObject_t object;
    cudaGraph_t graph;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaUserObjectCreate(&object, (void *)&ended, end_it, 1, cudaUserObjectNoDestructorSync));
    OK(cudaUserObjectRetain(object, 1));
    OK(cudaGraphRetainUserObject(graph, object, 2, cudaGraphUserObjectMove));
    OK(cudaGraphReleaseUserObject(graph, object, 1));
    cudaGraphExec_t exec = run(graph);
    OK(cudaGraphDestroy(graph));
    usleep(20000);
    cr_assert_eq(atomic_load(&ended), 0);
    OK(cudaGraphExecDestroy(exec));
    for (int i = 0; i < 5000 && !atomic_load(&ended); i++)
        usleep(1000);
    cr_assert_eq(atomic_load(&ended), 1);
}

Test(softgpu_runtime_graph, errors_of_captures_have_their_names, .init = setup)
{
    cudaGraph_t graph;
    cudaEvent_t event;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(event, stream));
    FAILS(cudaEventQuery(event), cudaErrorCapturedEvent);
    FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    OK(cudaMemsetAsync(data, 1, 4, other));
    FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    void *pointer;
    FAILS(cudaMalloc(&pointer, 64), cudaErrorStreamCaptureUnsupported);
    FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    cudaGetLastError();
}
