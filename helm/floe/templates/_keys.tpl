{{/*
Passwords and keys that agents read again from files: a Secret that changes needs no restart. By the name of their volume: the
Secret, and its keys, which are the files below /etc/floe/<volume>. As JSON.
*/}}
{{- define "floe.keys" -}}
{{- $all := dict -}}
{{- with .Values.etcd.authSecretName -}}{{- $_ := set $all "etcd-auth" (dict "secret" . "keys" (list "password")) -}}{{- end -}}
{{- if include "floe.keyFiles" . -}}
{{- $_ := set $all "store-keys" (dict "secret" .Values.objectStore.credentialsSecretName "keys" (list "access-key" "secret-key")) -}}
{{- end -}}
{{- $all | toJson -}}
{{- end -}}

{{/* Whether the store's keys are files: only S3's are read again. */}}
{{- define "floe.keyFiles" -}}
{{- if and .Values.objectStore.credentialsSecretName (hasPrefix "s3://" .Values.objectStore.url) -}}true{{- end -}}
{{- end -}}

{{- define "floe.keyMounts" -}}
{{- range $volume, $_ := include "floe.keys" . | fromJson }}
- name: {{ $volume }}
  mountPath: /etc/floe/{{ $volume }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "floe.keyVolumes" -}}
{{- range $volume, $of := include "floe.keys" . | fromJson }}
- name: {{ $volume }}
  secret:
    secretName: {{ $of.secret }}
    items:
      {{- range $of.keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
{{- end -}}
