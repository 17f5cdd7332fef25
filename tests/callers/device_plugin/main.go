// SPDX-License-Identifier: Apache-2.0

// In the place of squat/generic-device-plugin, which is to be had as an image only: it takes the same --device, and
// hands out the same devices under the same names.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
	"sigs.k8s.io/yaml"
)

type device struct {
	Name   string
	Groups []struct {
		Count int
		Paths []struct{ Path string }
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "device plugin:", err)
		os.Exit(1)
	}
}

func offered(d device) ([]*api.Device, map[string][]*api.DeviceSpec) {
	var devices []*api.Device
	specs := map[string][]*api.DeviceSpec{}
	for g, group := range d.Groups {
		for i := 0; i < group.Count; i++ {
			id := fmt.Sprintf("%d-%d", g, i)
			devices = append(devices, &api.Device{ID: id, Health: api.Healthy})
			for _, p := range group.Paths {
				_, err := os.Stat(p.Path)
				fail(err)
				specs[id] = append(specs[id], &api.DeviceSpec{ContainerPath: p.Path, HostPath: p.Path, Permissions: "mrw"})
			}
		}
	}
	return devices, specs
}

func main() {
	if len(os.Args) != 3 || os.Args[1] != "--device" {
		fail(fmt.Errorf("arguments: %q", os.Args[1:]))
	}
	var d device
	fail(yaml.UnmarshalStrict([]byte(os.Args[2]), &d))
	devices, specs := offered(d)
	p := plugin.NewDevicePluginStub(devices, api.DevicePluginPath+d.Name+".sock", "squat.ai/"+d.Name, false, false)
	p.SetAllocFunc(func(r *api.AllocateRequest, _ map[string]*api.Device) (*api.AllocateResponse, error) {
		answer := &api.AllocateResponse{}
		for _, one := range r.ContainerRequests {
			given := &api.ContainerAllocateResponse{}
			for _, id := range one.DevicesIds {
				given.Devices = append(given.Devices, specs[id]...)
			}
			answer.ContainerResponses = append(answer.ContainerResponses, given)
		}
		return answer, nil
	})
	fail(p.Start())
	fail(p.Register(api.KubeletSocket, "squat.ai/"+d.Name, ""))
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
}
