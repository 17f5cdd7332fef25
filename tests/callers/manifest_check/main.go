// SPDX-License-Identifier: Apache-2.0

// Reads a manifest as Kubernetes' API server does that is asked for strict validation, and says what a pod of it is; for a
// DaemonSet of the template, as its controller makes one.
package main

import (
	"fmt"
	"io"
	"os"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	internal "k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	internalcore "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	"sigs.k8s.io/yaml"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func refused(o runtime.Object) field.ErrorList {
	options := validation.PodValidationOptions{}
	switch one := o.(type) {
	case *internalcore.Pod:
		one.Namespace = "default"
		return validation.ValidatePodCreate(one, options)
	case *internal.DaemonSet:
		return appsvalidation.ValidateDaemonSet(one, options)
	}
	return field.ErrorList{field.Invalid(field.NewPath("kind"), fmt.Sprintf("%T", o), "not expected here")}
}

func main() {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	text, err := io.ReadAll(os.Stdin)
	fail(err)
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	read, _, err := codecs.UniversalDeserializer().Decode(text, nil, nil)
	fail(err)
	legacyscheme.Scheme.Default(read)
	pod := core.Pod{}
	switch one := read.(type) {
	case *core.Pod:
		pod = *one
	case *apps.DaemonSet:
		pod.ObjectMeta, pod.Spec = one.Spec.Template.ObjectMeta, one.Spec.Template.Spec
		pod.Name, pod.Namespace = one.Name, one.Namespace
	}
	into, err := legacyscheme.Scheme.ConvertToVersion(read, runtime.InternalGroupVersioner)
	fail(err)
	fail(refused(into).ToAggregate())
	pod.APIVersion, pod.Kind = "v1", "Pod"
	out, err := yaml.Marshal(pod)
	fail(err)
	os.Stdout.Write(out)
}
